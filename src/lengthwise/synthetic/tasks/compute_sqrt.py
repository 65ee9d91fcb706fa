"""Compute the square root: of a binary number, rounded down, both with the lowest bit first.

>>> COMPUTE_SQRT.answer("00101")
'001'
>>> COMPUTE_SQRT.answer("1001")
'11'
"""

from __future__ import annotations

import math

from lengthwise.synthetic.tasks.binary import bits_of, number
from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def compute_sqrt(question: str) -> str:
    """The root, half as many bits as the number has (rounded up)."""
    return bits_of(math.isqrt(number(question)), (len(question) + 1) // 2)


COMPUTE_SQRT = SymbolTask(
    "compute-sqrt",
    "the root of a binary number, rounded down, lowest bit first",
    "01",
    any_of("01"),
    compute_sqrt,
    "context-sensitive",
    "growing",
)
