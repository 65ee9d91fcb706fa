"""Binary multiplication of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_MULTIPLICATION.answer("11*01")
'0110'
>>> BINARY_MULTIPLICATION.answer("1*0")
'00'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.binary import bits_of, number
from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def binary_multiplication(question: str) -> str:
    """The product, twice as many bits as each number has."""
    first, second = question.split("*")
    return bits_of(number(first) * number(second), 2 * len(first))


def _draw(length: int, rng: random.Random) -> str:
    bits = any_of("01")
    return bits(length, rng) + "*" + bits(length, rng)


BINARY_MULTIPLICATION = SymbolTask(
    "binary-multiplication",
    "the product of two binary numbers, lowest bit first",
    "01*",
    _draw,
    binary_multiplication,
    "context-sensitive",
    "growing",
)
