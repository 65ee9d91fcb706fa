"""Binary addition of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_ADDITION.answer("110+101")
'0001'
>>> BINARY_ADDITION.answer("1+0")
'10'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.binary import bits_of, number, two_numbers
from lengthwise.synthetic.tasks.symbols import SymbolTask


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
