"""Tracking tasks: people who move from place to place in a long text. Nothing is downloaded.

tracking_one_move   everyone is said to be somewhere once
tracking_two_moves  everyone moves on from a first place; the question asks for the last one

In bAbI's task 1 (`babilong_qa1`) the answer is hidden in a story that a small model loses even when it is near. Here
a person has one or two sentences, so that what is measured is whether far ones are used. One context holds a person
for each depth, and is read once for all of them. Sentences, names and places are those of no other task and of no
training form. A sample has the same people and places at every length; the background may
begin elsewhere.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.family import Family, Question
from lengthwise.evaluation.haystack import Fact, background_text, build_haystack
from lengthwise.evaluation.made_up import MadeUpTask
from lengthwise.evaluation.scoring import babilong_match

if TYPE_CHECKING:
    from lengthwise.evaluation.settings import EvaluationSettings
    from lengthwise.text import Corpus

LEAST_PEOPLE = 4

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


@dataclass(frozen=True, kw_only=True)
class TrackingTask(MadeUpTask):
    """Right if the reply's first sentence names the person's last place and no other of the text."""

    moves: int
    """Places of a person, 1 or 2."""
    version: int = 1
    metric: str = "accuracy"
    ranks: bool = True

    def check(self, spec: EvaluationSettings) -> None:
        """Refuse more depths than there are places for."""
        super().check(spec)
        most = len(_PLACES) // 2
        if len(spec.depths) > most:
            raise UsageError(
                f"{self.name} with {len(spec.depths)} depths", expected=f"at most {most}: each takes a person"
            )

    def make(
        self, tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int,
        stories: str | None = None,
    ) -> list[Question]:  # fmt: skip
        """A question for each depth, at which the last sentence on its person is.

        First sentences are at random places before the last ones. People at random places fill the context up to
        `LEAST_PEOPLE`. Ranked are all places of the text.
        """
        found: list[Question] = []
        for sample in range(samples):
            rng = random.Random(f"{seed}/tracking/{self.moves}/{sample}")
            more = [rng.random() for _ in range(LEAST_PEOPLE - len(depths))]
            lasts = [*(depth / 100 for depth in depths), *more]
            people = rng.sample(_PEOPLE, len(lasts))
            places = rng.sample(_PLACES, len(lasts) * self.moves)
            # Of equal depths the first sentence on a person comes before the last.
            told = [
                (last, True, rng.choice(_LAST).format(person, place))
                for last, person, place in zip(lasts, people, places, strict=False)
            ]
            if self.moves == 2:
                told += [
                    (rng.uniform(0, last), False, rng.choice(_FIRST).format(person, place))
                    for last, person, place in zip(lasts, people, places[len(lasts) :], strict=True)
                ]
            wanted = [fact[2] for fact in told[: len(depths)]]
            told.sort(key=lambda fact: fact[:2])
            texts = [text for _, _, text in told]
            background = background_text(corpus, rng, tokens=length)
            stack = build_haystack(
                tokenizer,
                head=_HEAD,
                tails=[_tail(person) for person in people[: len(depths)]],
                background=background,
                facts=[Fact(text, place) for place, _, text in told],
                length=length,
            )
            for index, (depth, prompt) in enumerate(zip(depths, stack.prompts, strict=True)):
                found.append(
                    Question(
                        key=f"{self.name}/L{length}/d{depth:g}/s{sample:03d}",
                        unit=f"s{sample:03d}",
                        context=f"{self.name}/L{length}/s{sample:03d}",
                        prompt=prompt,
                        golds=[places[index]],
                        candidates=sorted(places),
                        about=people[index],
                        new_tokens=12,
                        length=length,
                        depth=depth,
                        reached=stack.reached[texts.index(wanted[index])],
                    )
                )
        return found

    def score(self, question: Question, reply: str) -> float:
        """1 if the gold place is the only one of the text's places in the reply's first sentence, else 0."""
        return float(babilong_match(reply, question.golds[0], question.about, question.candidates))


def _tail(person: str) -> str:
    return f"\n\nQuestion: Where is {person} now?\nAnswer: {person} is now at the"


def _has_full_stop(reply: str) -> bool:
    return "." in reply


def _task(name: str, moves: int, what: str) -> TrackingTask:
    return TrackingTask(name=name, what=what, moves=moves, is_over=_has_full_stop)


class _Tracking(Family):
    name = "tracking"
    mean = "accuracy"
    tasks = (
        _task("tracking_one_move", 1, "where someone is, said once"),
        _task("tracking_two_moves", 2, "where someone is after moving on"),
    )


TRACKING = _Tracking()
