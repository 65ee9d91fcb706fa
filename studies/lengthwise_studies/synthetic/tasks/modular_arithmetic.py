"""Arithmetic modulo 5: a chain, a bracketed expression, an equation.

Modular arithmetic without brackets: the value of a chain of + - * modulo 5, * before + and -.

The length counts operators; Deletang et al. count symbols.

>>> MODULAR_ARITHMETIC.answer("1+2*3")
'2'
>>> MODULAR_ARITHMETIC.answer("1-3")
'3'

Modular arithmetic with brackets: the value of a fully bracketed expression of + - * modulo 5.

A term may have a sign: (-2). The length counts digits.

>>> BRACKETED_ARITHMETIC.answer("((1+2)*(-3))")
'1'
>>> BRACKETED_ARITHMETIC.answer("(-4)")
'1'
>>> BRACKETED_ARITHMETIC.answer("3")
'3'

Solve an equation: a bracketed expression modulo 5 in which one digit is x, and its value: what is x?

The length counts digits, x among them. Equations with other than one solution are not asked.

>>> SOLVE_EQUATION.answer("((1+x)*2):1")
'2'
>>> SOLVE_EQUATION.answer("(-x):1")
'4'
"""

from __future__ import annotations

import random

from lengthwise_studies.synthetic.tasks.symbols import SymbolTask


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


def _chain(length: int, rng: random.Random) -> str:
    return rng.choice("01234") + "".join(rng.choice("+-*") + rng.choice("01234") for _ in range(length))


MODULAR_ARITHMETIC = SymbolTask(
    "modular-arithmetic",
    "a chain of + - * modulo 5, by number of operators",
    "01234+-*",
    _chain,
    modular_arithmetic,
    "regular",
    "fixed",
)


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


def solve_equation(question: str) -> str:
    """The one digit 0 .. 4 that makes the equation true."""
    [solution] = _solutions(*question.split(":"))
    return solution


def _solutions(left: str, value: str) -> list[str]:
    digits = map(str, range(MODULUS))
    return [digit for digit in digits if bracketed_arithmetic(left.replace("x", digit)) == value]


def _equation(length: int, rng: random.Random) -> str:
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
    _equation,
    solve_equation,
    "context-free",
    "fixed",
)
