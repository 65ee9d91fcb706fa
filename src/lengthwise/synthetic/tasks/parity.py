"""Parity: is the number of ones odd? One bit, whatever the length.

>>> PARITY.answer("1101")
'1'
>>> PARITY.answer("0110")
'0'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


def parity(question: str) -> str:
    """1 for an odd number of ones, else 0."""
    return str(question.count("1") % 2)


PARITY = SymbolTask("parity", "is the number of ones odd?", "01", any_of("01"), parity, "regular", "fixed")
