"""Sort a string: of five symbols (bucket sort), or of many, of which none comes twice.

>>> BUCKET_SORT.answer("30410")
'00134'
>>> SORT.answer("hac")
'ach'
"""

from __future__ import annotations

import random

from lengthwise.errors import UsageError
from lengthwise.synthetic.tasks.symbols import SymbolTask, any_of

MANY = "".join(chr(code) for code in range(ord("0"), ord("0") + 75) if chr(code) not in "=^$")


def sort(question: str) -> str:
    """The symbols in ascending order."""
    return "".join(sorted(question))


def _distinct(length: int, rng: random.Random) -> str:
    if length > len(MANY):
        raise UsageError(
            f"the task sort at length {length}", expected=f"at most {len(MANY)}, as no symbol comes twice"
        )
    return "".join(rng.sample(MANY, length))


BUCKET_SORT = SymbolTask(
    "bucket-sort", "five symbols sorted", "01234", any_of("01234"), sort, "context-sensitive", "growing"
)
SORT = SymbolTask("sort", "distinct symbols sorted", MANY, _distinct, sort, None, "growing")
