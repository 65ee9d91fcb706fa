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
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from lengthwise.evaluation.haystack import LABELLED, MADE_UP, Context, background_text, made_up
from lengthwise.evaluation.task import Family, Question
from lengthwise.text.corpus import Corpus

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
        questions.append(
            _question(
                f"flag that the harbour of {harbour} flew most often", "Which is", harbour, flags[0], flags
            )
        )
    return told, questions


def _counts(rng: random.Random, harbours: list[str]) -> tuple[list[str], list[Question]]:
    told: list[str] = []
    questions: list[Question] = []
    for index, harbour in enumerate(harbours):
        told += [f"A ship called at the harbour of {harbour}."] * (2 * index + rng.randint(1, 2))
        asked = f"number of ships that called at the harbour of {harbour}"
        questions.append(_question(asked, "What is", harbour, _BINS[index], _BINS))
    return told, questions


def _question(asked: str, which: str, harbour: str, gold: str, candidates: Sequence[str]) -> Question:
    return Question(
        prompt=f"\n\nQuestion: {which} the {asked}?\nAnswer: The {asked} is",
        golds=[gold],
        candidates=sorted(candidates),
        about=harbour,
        new_tokens=12,
    )


def _contexts(make: Any, settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """A context with a question about each of its four harbours."""
    rng = random.Random(f"{settings.seed}/aggregation/{make.__name__}/{sample}")
    told, questions = make(rng, rng.sample(_HARBOURS, 4))
    rng.shuffle(told)
    facts = [(text, (index + 0.5) / len(told)) for index, text in enumerate(told)]
    yield background_text(corpus, rng, tokens=length), facts, questions


_task = partial(made_up, head=_HEAD, takes=MADE_UP, version=1, **LABELLED)

AGGREGATION = Family(
    "aggregation",
    (
        _task("aggregation_commonest", partial(_contexts, _flags), what="the commonest word"),
        _task("aggregation_count", partial(_contexts, _counts), what="how often a word occurs, in bins"),
    ),
)
