"""Modular arithmetic without brackets: the value of a chain of + - * modulo 5, * before + and -.

The length counts operators; Deletang et al. count symbols.

>>> MODULAR_ARITHMETIC.answer("1+2*3")
'2'
>>> MODULAR_ARITHMETIC.answer("1-3")
'3'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.symbols import SymbolTask


def modular_arithmetic(question: str) -> str:
    """The value of the chain, 0 .. 4."""
    total, product, sign = 0, int(question[0]), 1
    for operator, digit in zip(question[1::2], question[2::2], strict=True):
        if operator == "*":
            product = product * int(digit) % 5
        else:
            total += sign * product
            product, sign = int(digit), 1 if operator == "+" else -1
    return str((total + sign * product) % 5)


def _draw(length: int, rng: random.Random) -> str:
    return rng.choice("01234") + "".join(rng.choice("+-*") + rng.choice("01234") for _ in range(length))


MODULAR_ARITHMETIC = SymbolTask(
    "modular-arithmetic",
    "a chain of + - * modulo 5, by number of operators",
    "01234+-*",
    _draw,
    modular_arithmetic,
    "regular",
    "fixed",
)
