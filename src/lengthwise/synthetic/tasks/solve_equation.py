"""Solve an equation: a bracketed expression modulo 5 in which one digit is x, and its value: what is x?

The length counts digits, x among them. Equations with other than one solution are not asked.

>>> SOLVE_EQUATION.answer("((1+x)*2):1")
'2'
>>> SOLVE_EQUATION.answer("(-x):1")
'4'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.bracketed_arithmetic import (
    EXPRESSION_SYMBOLS,
    MODULUS,
    bracketed_arithmetic,
    expression,
)
from lengthwise.synthetic.tasks.symbols import SymbolTask


def solve_equation(question: str) -> str:
    """The one digit 0 .. 4 that makes the equation true."""
    [solution] = _solutions(*question.split(":"))
    return solution


def _solutions(left: str, value: str) -> list[str]:
    digits = map(str, range(MODULUS))
    return [digit for digit in digits if bracketed_arithmetic(left.replace("x", digit)) == value]


def _draw(length: int, rng: random.Random) -> str:
    while True:
        drawn = expression(length, rng)
        at = rng.choice([index for index, symbol in enumerate(drawn) if symbol.isdigit()])
        left, value = drawn[:at] + "x" + drawn[at + 1 :], bracketed_arithmetic(drawn)
        if len(_solutions(left, value)) == 1:
            return f"{left}:{value}"


SOLVE_EQUATION = SymbolTask(
    "solve-equation",
    "the unknown of a bracketed equation modulo 5, by number of digits",
    EXPRESSION_SYMBOLS + "x:",
    _draw,
    solve_equation,
    "context-free",
    "fixed",
)
