"""Duplicate a string: w becomes ww.

>>> DUPLICATE.answer("abb")
'abbabb'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def duplicate(question: str) -> str:
    """The string twice."""
    return question * 2


DUPLICATE = SymbolTask(
    "duplicate", "a string twice", "ab", any_of("ab"), duplicate, "context-sensitive", "growing"
)
