"""Binary addition of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_ADDITION.answer("110+101")
'0001'
>>> BINARY_ADDITION.answer("1+0")
'10'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.binary import bits_of, number
from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def binary_addition(question: str) -> str:
    """The sum, one bit more than each number has."""
    first, second = question.split("+")
    return bits_of(number(first) + number(second), len(first) + 1)


def _draw(length: int, rng: random.Random) -> str:
    bits = any_of("01")
    return bits(length, rng) + "+" + bits(length, rng)


BINARY_ADDITION = SymbolTask(
    "binary-addition",
    "the sum of two binary numbers, lowest bit first",
    "01+",
    _draw,
    binary_addition,
    "context-sensitive",
    "growing",
)
