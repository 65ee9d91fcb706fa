"""Tracking tasks: people who move from place to place in a long text. Nothing is downloaded.

tracking_one_move   everyone is said to be somewhere once
tracking_two_moves  everyone moves on from a first place; the question asks for the last one

In bAbI's task 1 (`babilong_qa1`) the answer is hidden in a story that a small model loses even when it is near. Here
a person has one or two sentences, so that what is measured is whether far ones are used. One context holds a person
for each depth, and is read once for all of them. Sentences, names and places are those of no other task and of no
training form. A sample has the same people and places at every length; the background may begin elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from lengthwise.evaluation.haystack import MADE_UP, Told, labelled, labelled_task
from lengthwise.evaluation.task import Family, Task

_LEAST_PEOPLE = 4

_HEAD = (
    "Some people are on their way in the text below. "
    "Keep in mind where each of them is; you will be asked at the end.\n\n"
)
_PEOPLE = (
    "Agnes", "Bertram", "Clara", "Edmund", "Felix", "Greta", "Hugo", "Ingrid", "Leonard", "Matilda", "Oscar",
    "Rosalind",
)  # fmt: skip
_PLACES = (
    "bakery", "barn", "bridge", "castle", "chapel", "ferry", "forge", "harbour", "inn", "library", "lighthouse",
    "market", "mill", "orchard", "quarry", "school", "stable", "station", "theatre", "tower", "vineyard", "wharf",
)  # fmt: skip
_FIRST = (
    "{} spent the morning at the {}.",
    "{} set out from the {} at dawn.",
    "{} had business at the {} first.",
)
_LAST = (
    "{} has now arrived at the {} and will stay there.",
    "By evening {} was resting at the {}.",
    "{} came at last to the {} and remained.",
)


def _tell(moves: int, rng: random.Random, depths: Sequence[float]) -> Told:
    """A question for each depth, at which the last sentence on its person is.

    First sentences are at random places before the last ones. People at random places fill the context up to
    `_LEAST_PEOPLE`. Ranked are all places of the text.
    """
    more = [rng.random() for _ in range(_LEAST_PEOPLE - len(depths))]
    lasts = [*(depth / 100 for depth in depths), *more]
    people = rng.sample(_PEOPLE, len(lasts))
    places = rng.sample(_PLACES, len(lasts) * moves)
    wanted = [rng.choice(_LAST).format(person, place) for person, place in zip(people, places, strict=False)]
    # Of equal depths the first sentence on a person comes before the last.
    told = [(last, True, text) for last, text in zip(lasts, wanted, strict=True)]
    if moves == 2:
        told += [
            (rng.uniform(0, last), False, rng.choice(_FIRST).format(person, place))
            for last, person, place in zip(lasts, people, places[len(lasts) :], strict=True)
        ]
    told.sort(key=lambda fact: fact[:2])
    texts = [text for _, _, text in told]
    questions = [
        labelled(
            f"Where is {person} now?",
            f"{person} is now at the",
            place,
            places,
            about=person,
            depth=depth,
            fact=texts.index(text),
        )
        for depth, person, place, text in zip(depths, people, places, wanted, strict=False)
    ]
    return [(text, place) for place, _, text in told], questions


def _task(name: str, moves: int, what: str) -> Task:
    tell, takes = partial(_tell, moves), MADE_UP | {"depths"}
    how = {"head": _HEAD, "version": 1, "most_depths": len(_PLACES) // 2, "what": what}
    return labelled_task(name, tell, seed=f"tracking/{moves}", takes=takes, **how)


TRACKING = Family(
    "tracking",
    (
        _task("tracking_one_move", 1, "where someone is, told once"),
        _task("tracking_two_moves", 2, "where someone is after moving on"),
    ),
    mean="accuracy",
)
