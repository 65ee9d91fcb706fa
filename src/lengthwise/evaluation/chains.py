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
from functools import partial

from lengthwise.evaluation.haystack import Told, labelled, labelled_task, quarter
from lengthwise.evaluation.task import Family, Question

_CHAINS = 4

_HEAD = (
    "Some variables get values in the text below, directly or from one another. "
    "Keep in mind the value of each of them; you will be asked at the end.\n\n"
)
_LETTERS = "BCDFGHJKLMNPQRSTVWXZ"


def _tell(hops: int, rng: random.Random, _: object) -> Told:
    """A question about the end of each chain."""
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
            labelled(
                f"What is {end}?", f"T{end[1:]} is", value, values, about=chain[-1], bucket=quarter(start)
            )
        )
    return [(text, place) for place, text in sorted(told)], questions


def _names(rng: random.Random, count: int) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(rng.choices(_LETTERS, k=3))] = None
    return list(found)


CHAINS = Family(
    "chains",
    tuple(
        labelled_task(
            f"chains_{hops}",
            partial(_tell, hops),
            seed=f"chains/{hops}",
            head=_HEAD,
            version=2,
            what=f"a value after {hops} hop{'s' * (hops != 1)}",
        )
        for hops in (0, 1, 2, 4)
    ),
)
