"""Missing duplicate: a string twice with one symbol blanked (_): which was it?

The length counts one copy.

>>> MISSING_DUPLICATE.answer("abbab_")
'b'
>>> MISSING_DUPLICATE.answer("_bab")
'a'
"""

from __future__ import annotations

import random

from lengthwise.synthetic.tasks.symbols import SymbolTask


def missing_duplicate(question: str) -> str:
    """The symbol at the same place of the other copy."""
    half = len(question) // 2
    return question[(question.index("_") + half) % len(question)]


def _draw(length: int, rng: random.Random) -> str:
    copied = [rng.choice("ab") for _ in range(length)] * 2
    copied[rng.randrange(len(copied))] = "_"
    return "".join(copied)


MISSING_DUPLICATE = SymbolTask(
    "missing-duplicate",
    "the blanked symbol of a string written twice",
    "ab_",
    _draw,
    missing_duplicate,
    "context-sensitive",
    "fixed",
)
