"""Regular languages with an answer of one symbol: parity, even pairs, a walk on a cycle.

Parity: is the number of ones odd? One bit, whatever the length.

>>> PARITY.answer("1101")
'1'
>>> PARITY.answer("0110")
'0'

Even pairs: do 01 and 10 together occur an even number of times? True when the ends are equal.

>>> EVEN_PAIRS.answer("0110")
'1'
>>> EVEN_PAIRS.answer("011")
'0'

Cycle navigation: where do steps forward (+), back (-) and stay (0) on a cycle of five end?

>>> CYCLE_NAVIGATION.answer("++0-+")
'2'
>>> CYCLE_NAVIGATION.answer("--")
'3'
"""

from __future__ import annotations

import itertools

from lengthwise_studies.synthetic.tasks.symbols import SymbolTask, any_of


def parity(question: str) -> str:
    """1 for an odd number of ones, else 0."""
    return str(question.count("1") % 2)


PARITY = SymbolTask("parity", "is the number of ones odd?", "01", any_of("01"), parity, "regular", "fixed")


def even_pairs(question: str) -> str:
    """1 if neighbours differ an even number of times, else 0."""
    changes = sum(a != b for a, b in itertools.pairwise(question))
    return str(1 - changes % 2)


EVEN_PAIRS = SymbolTask(
    "even-pairs",
    "do neighbours differ an even number of times?",
    "01",
    any_of("01"),
    even_pairs,
    "regular",
    "fixed",
)


def cycle_navigation(question: str) -> str:
    """The place 0 .. 4 after all steps from 0."""
    return str((question.count("+") - question.count("-")) % 5)


CYCLE_NAVIGATION = SymbolTask(
    "cycle-navigation",
    "the place on a cycle of five after steps + - 0",
    "+-01234",
    any_of("+-0"),
    cycle_navigation,
    "regular",
    "fixed",
)
