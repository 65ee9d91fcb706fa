"""Binary numbers as the tasks of them write them: lowest bit first, of a width that the question's length gives.

Deletang et al. count the symbols of both numbers together and pad. Here each number has as many bits as the length
says and an answer as many as it can need, so that its width tells nothing of it.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from lengthwise.synthetic.tasks.symbols import any_of


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
