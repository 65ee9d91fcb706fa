"""Chains: a value that is passed from name to name through a long text (RULER's variable tracking).

chains_0, chains_1, chains_2, chains_4  the question asks for the value after as many hops

A context holds four chains of one shape: a number is given to a name, another name gets the value of the first, and
so on. The four numbers are in the first half of the context, one in each eighth; all hops come at random places of
the second half. So no hop is nearer to its own number than to another, and a reader who takes the number before a
hop is at chance. A context is read once and asked about the end of every chain. Ranked are the four numbers. At every
length a sample has the same chains, so hops and length part; the background may begin elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

from lengthwise.evaluation.haystack import LABELLED, MADE_UP, Context, background_text, made_up, quarter
from lengthwise.evaluation.task import Family, Question
from lengthwise.text.corpus import Corpus

_CHAINS = 4

_HEAD = (
    "Some variables get values in the text below, directly or from one another. "
    "Keep in mind the value of each of them; you will be asked at the end.\n\n"
)
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def _contexts(hops: int, settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """A context with a question about the end of each chain."""
    rng = random.Random(f"{settings.seed}/chains/{hops}/{sample}")
    names = _names(rng, _CHAINS * (hops + 1))
    values = [str(value) for value in rng.sample(range(10_000, 100_000), _CHAINS)]
    told: list[tuple[float, str]] = []
    questions: list[Question] = []
    for index, value in enumerate(values):
        chain = names[index * (hops + 1) : (index + 1) * (hops + 1)]
        start = (index + rng.random()) / (2 * _CHAINS)
        told.append((start, f"The variable {chain[0]} has the value {value}."))
        later = sorted(rng.uniform(0.5, 1) for _ in range(hops))
        told += [
            (place, f"The variable {name} gets the value of the variable {before}.")
            for place, before, name in zip(later, chain, chain[1:], strict=False)
        ]
        end = f"the value of the variable {chain[-1]}"
        questions.append(
            Question(
                prompt=f"\n\nQuestion: What is {end}?\nAnswer: T{end[1:]} is",
                golds=[value],
                candidates=sorted(values),
                about=chain[-1],
                new_tokens=12,
                bucket=quarter(start),
            )
        )
    facts = [(text, place) for place, text in sorted(told)]
    yield background_text(corpus, rng, tokens=length), facts, questions


def _names(rng: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(_LETTERS, k=3))] = None
    return list(found)


_task = partial(made_up, head=_HEAD, takes=MADE_UP, version=2, **LABELLED)

CHAINS = Family(
    "chains",
    tuple(
        _task(f"chains_{hops}", partial(_contexts, hops), what=f"a value after {hops} hop{'s' * (hops != 1)}")
        for hops in (0, 1, 2, 4)
    ),
)
