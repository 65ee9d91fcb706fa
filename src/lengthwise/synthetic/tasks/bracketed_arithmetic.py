"""Modular arithmetic with brackets: the value of a fully bracketed expression of + - * modulo 5.

A sign may stand before a term: (-2). The length counts digits.

>>> BRACKETED_ARITHMETIC.answer("((1+2)*(-3))")
'1'
>>> BRACKETED_ARITHMETIC.answer("(-4)")
'1'
>>> BRACKETED_ARITHMETIC.answer("3")
'3'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.symbols import SymbolTask

MODULUS = 5
EXPRESSION_SYMBOLS = "01234+-*()"


def bracketed_arithmetic(question: str) -> str:
    """The value of the expression, 0 .. 4."""
    value, end = _read(question, 0)
    assert end == len(question)
    return str(value % MODULUS)


def expression(digits: int, rng: random.Random) -> str:
    """A random expression of so many digits: each split falls evenly, a fifth of the digits has a sign."""
    if digits == 1:
        digit = str(rng.randrange(MODULUS))
        return f"(-{digit})" if rng.random() < 1 / 5 else digit
    left = rng.randint(1, digits - 1)
    return f"({expression(left, rng)}{rng.choice('+-*')}{expression(digits - left, rng)})"


def _read(text: str, at: int) -> tuple[int, int]:
    """The value of the expression that begins at a place, and where it ends."""
    if text[at] != "(":
        return int(text[at]), at + 1
    if text[at + 1] == "-":
        value, end = _read(text, at + 2)
        return -value, end + 1
    left, operator = _read(text, at + 1)
    right, end = _read(text, operator + 1)
    value = {"+": left + right, "-": left - right, "*": left * right}[text[operator]]
    return value, end + 1


BRACKETED_ARITHMETIC = SymbolTask(
    "modular-arithmetic-brackets",
    "a bracketed expression of + - * modulo 5, by number of digits",
    EXPRESSION_SYMBOLS,
    expression,
    bracketed_arithmetic,
    "context-free",
    "fixed",
)
