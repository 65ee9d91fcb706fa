"""Odds first: the symbols at odd places (1st, 3rd, ...), then those at even places.

>>> ODDS_FIRST.answer("abbab")
'abbba'
>>> ODDS_FIRST.answer("ab")
'ab'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def odds_first(question: str) -> str:
    """Every other symbol from the first, then every other from the second."""
    return question[::2] + question[1::2]


ODDS_FIRST = SymbolTask(
    "odds-first",
    "symbols at odd places, then those at even ones",
    "ab",
    any_of("ab"),
    odds_first,
    "context-sensitive",
    "growing",
)
