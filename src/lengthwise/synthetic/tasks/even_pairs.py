"""Even pairs: do 01 and 10 together occur an even number of times? True when the ends are equal.

>>> EVEN_PAIRS.answer("0110")
'1'
>>> EVEN_PAIRS.answer("011")
'0'
"""

from __future__ import annotations

import itertools

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def even_pairs(question: str) -> str:
    """1 if neighbours differ an even number of times, else 0."""
    changes = sum(a != b for a, b in itertools.pairwise(question))
    return str(1 - changes % 2)


EVEN_PAIRS = SymbolTask(
    "even-pairs",
    "do neighbours differ an even number of times?",
    "01",
    any_of("01"),
    even_pairs,
    "regular",
    "fixed",
)
