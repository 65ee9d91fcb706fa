"""Strings rearranged: copied, reversed, doubled, sorted.

Copy a string.

>>> COPY.answer("abca")
'abca'

Reverse a string.

>>> REVERSE.answer("abb")
'bba'

Duplicate a string: w becomes ww.

>>> DUPLICATE.answer("abb")
'abbabb'

Odds first: the symbols at odd places (1st, 3rd, ...), then those at even places.

>>> ODDS_FIRST.answer("abbab")
'abbba'
>>> ODDS_FIRST.answer("ab")
'ab'

Missing duplicate: a string twice with one symbol blanked (_): which was it?

The length counts one copy.

>>> MISSING_DUPLICATE.answer("abbab_")
'b'
>>> MISSING_DUPLICATE.answer("_bab")
'a'

Sort a string: of five symbols (bucket sort), or of many, of which none comes twice.

>>> BUCKET_SORT.answer("30410")
'00134'
>>> SORT.answer("hac")
'ach'
"""

from __future__ import annotations

import random

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.tasks.symbols import SymbolTask, any_of


def copy(question: str) -> str:
    """The string itself."""
    return question


COPY = SymbolTask("copy", "the string itself", "abcdefgh", any_of("abcdefgh"), copy, None, "growing")


def reverse(question: str) -> str:
    """The string from its end."""
    return question[::-1]


REVERSE = SymbolTask("reverse", "a string reversed", "ab", any_of("ab"), reverse, "context-free", "growing")


def duplicate(question: str) -> str:
    """The string twice."""
    return question * 2


DUPLICATE = SymbolTask(
    "duplicate", "a string twice", "ab", any_of("ab"), duplicate, "context-sensitive", "growing"
)


def odds_first(question: str) -> str:
    """Every other symbol from the first, then every other from the second."""
    return question[::2] + question[1::2]


ODDS_FIRST = SymbolTask(
    "odds-first",
    "symbols at odd places, then those at even ones",
    "ab",
    any_of("ab"),
    odds_first,
    "context-sensitive",
    "growing",
)


def missing_duplicate(question: str) -> str:
    """The symbol at the same place of the other copy."""
    half = len(question) // 2
    return question[(question.index("_") + half) % len(question)]


def _blanked(length: int, rng: random.Random) -> str:
    copied = [rng.choice("ab") for _ in range(length)] * 2
    copied[rng.randrange(len(copied))] = "_"
    return "".join(copied)


MISSING_DUPLICATE = SymbolTask(
    "missing-duplicate",
    "the blanked symbol of a string written twice",
    "ab_",
    _blanked,
    missing_duplicate,
    "context-sensitive",
    "fixed",
)


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
