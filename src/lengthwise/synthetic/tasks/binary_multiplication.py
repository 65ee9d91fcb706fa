"""Binary multiplication of two numbers of equally many bits, lowest bit first. The length counts the bits of one.

>>> BINARY_MULTIPLICATION.answer("11*01")
'0110'
>>> BINARY_MULTIPLICATION.answer("1*0")
'00'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.binary import bits_of, number, two_numbers
from lengthwise.synthetic.tasks.symbols import SymbolTask


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
