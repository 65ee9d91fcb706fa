"""Tasks with coupled position ids: tokens that belong together share an id.

A sample is a prompt and a response, with an id for each token, counted from 0; training adds a random start to all
ids of a sample. `sources` says for each token of the response which tokens decide it (indices into both): how many
they are is its sparsity, and how far apart, in the order of tokens or in ids, its locality.

Ids of parity and addition follow the public code of position coupling (Cho et al. 2024), with the direction of
addition ours: ids rise in the response, so that each is one more than the one before. Those of variable assignment
are ours; the paper's (E.3.1) were not found.

>>> import random
>>> one = PARITY.draw(3, random.Random(1))
>>> one.prompt, one.response, one.ids
('^001=', '001$', (0, 1, 2, 3, 0, 1, 2, 3, 4))
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

BEGIN, EQUALS, END = "^", "=", "$"


@dataclass(frozen=True)
class CoupledSample:
    """One question with its answer. `sources` are for each token of the response those that decide it."""

    prompt: str
    response: str
    ids: tuple[int, ...]
    sources: tuple[tuple[int, ...], ...]

    @property
    def ids_used(self) -> int:
        """How many rows of a table of ids it needs."""
        return max(self.ids) + 1


@dataclass(frozen=True)
class CoupledTask:
    """A string to answer a string with, and ids that couple the two: every symbol, and a sample of a length."""

    name: str
    alphabet: str
    draw: Callable[[int, random.Random], CoupledSample]

    @property
    def vocabulary(self) -> str:
        """The alphabet and the three markers; a symbol's place is its token id."""
        return self.alphabet + BEGIN + EQUALS + END


def _parity(length: int, rng: random.Random) -> CoupledSample:
    bits = [rng.randint(0, 1) for _ in range(length)]
    scratch = accumulate(bits, lambda parity, bit: parity ^ bit)
    counted = tuple(range(1, length + 1))
    equals = length + 1
    return CoupledSample(
        BEGIN + "".join(map(str, bits)) + EQUALS,
        "".join(map(str, scratch)) + END,
        (0, *counted, 0, *counted, length + 1),
        # A bit of the scratchpad follows from the one before it and its own bit; the end from the last bit.
        ((1,), *((equals + step - 1, step) for step in counted[1:]), (length, equals + length)),
    )


def _variable_assignment(length: int, rng: random.Random) -> CoupledSample:
    chain = rng.sample(_VARIABLES, length + 1)
    order = rng.sample(range(length), length)
    place = {step: index for index, step in enumerate(order)}
    pairs = "".join(chain[step] + chain[step + 1] for step in order)
    paired = tuple(index + 1 for index in range(length) for _ in range(2))
    first = 2 * length + 2
    """Index of the variable that the chain begins with, the last token of the prompt."""
    return CoupledSample(
        BEGIN + pairs + EQUALS + chain[0],
        "".join(chain[1:]) + END,
        # A variable has the id of the pair that assigns to the next one; the last variable has none.
        (0, *paired, 0, *(place[step] + 1 for step in range(length)), 0, 0),
        (
            *((2 * place[step] + 1, 2 * place[step] + 2, first + step) for step in range(length)),
            (first + length,),
        ),
    )


def _addition(length: int, rng: random.Random) -> CoupledSample:
    first, second = ("".join(rng.choice(_DIGITS) for _ in range(length)) for _ in range(2))
    total = int(first, len(_DIGITS)) + int(second, len(_DIGITS))
    answer = "".join(_DIGITS[total // len(_DIGITS) ** place % len(_DIGITS)] for place in range(length + 1))
    falling, rising = tuple(range(length, 0, -1)), tuple(range(1, length + 2))
    plus, equals = length + 1, 2 * length + 2
    digits = [
        # The lowest digit of the sum follows from two digits; the others also from those below them, which decide
        # the carry together with the digit of the sum that they gave.
        tuple(
            index
            for low in (place, place - 1)
            for index in ((plus - low, equals - low) if 1 <= low <= length else ())
        )
        + ((equals + place - 1,) if place > 1 else ())
        for place in rising
    ]
    return CoupledSample(
        f"{BEGIN}{first}+{second}{EQUALS}",
        answer + END,
        (0, *falling, 0, *falling, 0, *rising, length + 2),
        (*digits, (1, equals + length + 1)),
    )


_VARIABLES = string.ascii_lowercase
_DIGITS = "0123"
"""Of addition: base 4 is ours; a sum of decimal digits is slow to learn for models this small."""

PARITY = CoupledTask("parity", "01", _parity)
"""Running parity of a string of bits. The length counts bits."""
VARIABLE_ASSIGNMENT = CoupledTask("variable-assignment", _VARIABLES, _variable_assignment)
"""Pairs of variables in any order; the answer follows them from one to the next. The length counts pairs."""
ADDITION = CoupledTask("addition", _DIGITS + "+", _addition)
"""The sum of two numbers in base 4, lowest digit first. The length counts the digits of one."""

COUPLED_TASKS: dict[str, CoupledTask] = {task.name: task for task in (PARITY, VARIABLE_ASSIGNMENT, ADDITION)}
