"""Addition of two numbers of equally many digits, the sum from its lowest digit; with and without index hints.

The length counts the digits of one number. A hint (a, b, c, ...) names the place of the digit after it,
so that a model finds the digits to add by their hint (Zhou et al. 2024).

>>> ADDITION.answer("57+68")
'521'
>>> HINTED_ADDITION.answer("b5a7+b6a8")
'a5b2c1'
>>> ADDITION.answer("10+02")
'210'
"""

from __future__ import annotations

import random

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.tasks.symbols import SymbolTask

DIGITS = "0123456789"
HINTS = "".join(chr(code) for code in range(ord("a"), ord("z") + 1)) + "".join(
    chr(code) for code in range(ord("A"), ord("Z") + 1)
)


def addition(question: str) -> str:
    """The sum from its lowest digit, one digit more than each number has."""
    first, second = question.split("+")
    return f"{int(first) + int(second):0{len(first) + 1}d}"[::-1]


def hinted_addition(question: str) -> str:
    """The same with a hint before every digit."""
    plain = "".join(symbol for symbol in question if symbol not in HINTS)
    return "".join(hint + digit for hint, digit in zip(HINTS, addition(plain), strict=False))


def _number(length: int, rng: random.Random) -> str:
    return "".join(rng.choice(DIGITS) for _ in range(length))


def _draw(length: int, rng: random.Random) -> str:
    return _number(length, rng) + "+" + _number(length, rng)


def _draw_hinted(length: int, rng: random.Random) -> str:
    if length >= len(HINTS):
        raise UsageError(
            f"addition with index hints of {length} digits", expected=f"at most {len(HINTS) - 1}"
        )
    return "+".join(
        "".join(hint + digit for hint, digit in zip(reversed(HINTS[:length]), number, strict=True))
        for number in _draw(length, rng).split("+")
    )


ADDITION = SymbolTask(
    "addition", "the sum of two numbers, lowest digit first", DIGITS + "+", _draw, addition, None, "growing"
)
HINTED_ADDITION = SymbolTask(
    "addition-hinted",
    "the same with an index hint before every digit",
    DIGITS + "+" + HINTS,
    _draw_hinted,
    hinted_addition,
    None,
    "growing",
)
