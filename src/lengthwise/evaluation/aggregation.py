"""Aggregation: answers that need all of a long text, not one place in it (RULER's cwe and fwe, Oolong).

aggregation_commonest  which of four flags was flown most often at a place
aggregation_count      how many ships called at a place: one or two, three or four, five or six, seven or eight

A context tells of four places, in sentences evenly spread in random order, and is read once and asked about each.
At every place the four flags were flown five times, twice, twice and once: copying any one of these sentences is
right in half of the questions, so only more than a half shows counting. Of the counts each bin is right for one
place of a context, so a reader who prefers a bin is at chance. A sample has the same sentences at every length, so a
longer context adds background and no counting; the background may begin elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from lengthwise.evaluation.haystack import Told, labelled, labelled_task
from lengthwise.evaluation.task import Family, Question, Task

_HEAD = (
    "The logs of some harbours are scattered over the text below. "
    "Keep count of what happens in each of them; you will be asked at the end.\n\n"
)
_HARBOURS = (
    "Aldmere", "Brackwater", "Cresthaven", "Dunmouth", "Eastfleet", "Farsund", "Greywharf", "Holmness",
)  # fmt: skip
_FLAGS = ("black", "blue", "green", "orange", "purple", "red", "white", "yellow")
_TIMES = (5, 2, 2, 1)
"""How often the flags of a harbour are flown."""
_BINS = ("one or two", "three or four", "five or six", "seven or eight")


def _flags(rng: random.Random, harbours: list[str]) -> tuple[list[str], list[Question]]:
    told: list[str] = []
    questions: list[Question] = []
    for harbour in harbours:
        flags = rng.sample(_FLAGS, len(_TIMES))
        told += [
            f"The harbour of {harbour} flew a {flag} flag that day."
            for flag, times in zip(flags, _TIMES, strict=True)
            for _ in range(times)
        ]
        asked = f"the flag that the harbour of {harbour} flew most often"
        questions.append(labelled(f"Which is {asked}?", f"T{asked[1:]} is", flags[0], flags, about=harbour))
    return told, questions


def _counts(rng: random.Random, harbours: list[str]) -> tuple[list[str], list[Question]]:
    told: list[str] = []
    questions: list[Question] = []
    for index, harbour in enumerate(harbours):
        told += [f"A ship called at the harbour of {harbour}."] * (2 * index + rng.randint(1, 2))
        asked = f"the number of ships that called at the harbour of {harbour}"
        questions.append(
            labelled(f"What is {asked}?", f"T{asked[1:]} is", _BINS[index], _BINS, about=harbour)
        )
    return told, questions


def _tell(make: Callable[..., tuple[list[str], list[Question]]], rng: random.Random, _: Any) -> Told:
    """A question about each of four harbours."""
    told, questions = make(rng, rng.sample(_HARBOURS, 4))
    rng.shuffle(told)
    return [(text, (index + 0.5) / len(told)) for index, text in enumerate(told)], questions


def _task(name: str, make: Callable[..., tuple[list[str], list[Question]]], what: str) -> Task:
    seed = f"aggregation/{make.__name__}"
    return labelled_task(name, partial(_tell, make), seed=seed, head=_HEAD, version=1, what=what)


AGGREGATION = Family(
    "aggregation",
    (
        _task("aggregation_commonest", _flags, "the commonest word"),
        _task("aggregation_count", _counts, "how often a word occurs, in bins"),
    ),
)
