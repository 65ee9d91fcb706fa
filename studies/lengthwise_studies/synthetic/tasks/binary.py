"""Binary numbers, lowest bit first: addition, multiplication, square root.

Deletang et al. count the symbols of both numbers together and pad. Here each number has as many bits as the
question's length says, and an answer as many as it can need, so its width reveals nothing.

Binary addition of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_ADDITION.answer("110+101")
'0001'
>>> BINARY_ADDITION.answer("1+0")
'10'

Binary multiplication of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_MULTIPLICATION.answer("11*01")
'0110'
>>> BINARY_MULTIPLICATION.answer("1*0")
'00'

Compute the square root: of a binary number, rounded down, both with the lowest bit first.

>>> COMPUTE_SQRT.answer("00101")
'001'
>>> COMPUTE_SQRT.answer("1001")
'11'
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from lengthwise_studies.synthetic.tasks.symbols import SymbolTask, any_of


def number(bits: str) -> int:
    """The number whose lowest bit comes first.

    >>> number("011")
    6
    """
    return int(bits[::-1], 2)


def bits_of(value: int, width: int) -> str:
    """So many bits of a number, the lowest first.

    >>> bits_of(6, 4)
    '0110'
    """
    assert value < 2**width
    return f"{value:0{width}b}"[::-1]


def two_numbers(sign: str) -> Callable[[int, random.Random], str]:
    """Draws a question of two numbers of as many bits as the length says, with a sign between."""
    bits = any_of("01")
    return lambda length, rng: bits(length, rng) + sign + bits(length, rng)


def binary_addition(question: str) -> str:
    """The sum, one bit more than each number has."""
    first, second = question.split("+")
    return bits_of(number(first) + number(second), len(first) + 1)


BINARY_ADDITION = SymbolTask(
    "binary-addition",
    "the sum of two binary numbers, lowest bit first",
    "01+",
    two_numbers("+"),
    binary_addition,
    "context-sensitive",
    "growing",
)


def binary_multiplication(question: str) -> str:
    """The product, twice as many bits as each number has."""
    first, second = question.split("*")
    return bits_of(number(first) * number(second), 2 * len(first))


BINARY_MULTIPLICATION = SymbolTask(
    "binary-multiplication",
    "the product of two binary numbers, lowest bit first",
    "01*",
    two_numbers("*"),
    binary_multiplication,
    "context-sensitive",
    "growing",
)


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
