"""Cycle navigation: where do steps forward (+), back (-) and stay (0) on a cycle of five end?

>>> CYCLE_NAVIGATION.answer("++0-+")
'2'
>>> CYCLE_NAVIGATION.answer("--")
'3'
"""

from __future__ import annotations

from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of


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
