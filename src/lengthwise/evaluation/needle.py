"""Needle tasks: made-up numbers in a long text, to be found again. Nothing is downloaded.

needle_single       one number in the context, one question
needle_multi_key    several keys with a number each. Each question is about one key; the others are distractors.
                    One context holds a needle at each depth, and is read once for all of them
needle_multi_value  several numbers for one key; the question asks for all

A sample has the same background, keys and numbers at every depth, so depths are paired. At another length keys and
numbers are the same, but the background may begin elsewhere, so lengths are not paired.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.family import Family, Question
from lengthwise.evaluation.haystack import Fact, background_text, build_haystack
from lengthwise.evaluation.made_up import MADE_UP, MadeUpTask
from lengthwise.evaluation.scoring import contained_share

if TYPE_CHECKING:
    from lengthwise.text import Corpus

LEAST_KEYS = 4
VALUES = 3
CANDIDATES = 8

_HEAD = (
    "A storekeeper wrote down some locker numbers in the middle of the text below. "
    "Remember them; you will be asked for them at the end.\n\n"
)
_COLOURS = ("amber", "blue", "copper", "golden", "green", "grey", "ivory", "purple", "red", "silver", "white")
_THINGS = (
    "anchor", "basket", "bell", "candle", "feather", "hammer", "kettle", "ladder", "lantern", "mirror", "saddle",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class NeedleTask(MadeUpTask):
    """Scored by the share of the right numbers that the reply contains (RULER's score)."""

    version: int = 2
    metric: str = "contained"

    def score(self, question: Question, reply: str) -> float:
        """The share of the gold strings in the reply."""
        return contained_share(reply, question.golds)


class NeedleSingle(NeedleTask):
    """One needle in each context."""

    def make(
        self, tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int,
        stories: str | None = None,
    ) -> list[Question]:  # fmt: skip
        """One question for each depth and sample, each with a context of its own."""
        found: list[Question] = []
        for sample in range(samples):
            rng = random.Random(f"{seed}/single/{sample}")
            [key] = _keys(rng, 1)
            numbers = _numbers(rng, CANDIDATES)
            background = background_text(corpus, rng, tokens=length)
            for depth in depths:
                stack = build_haystack(
                    tokenizer,
                    head=_HEAD,
                    tails=[_tail(key)],
                    background=background,
                    facts=[Fact(_needle(key, numbers[0]), depth / 100)],
                    length=length,
                )
                name = f"{self.name}/L{length}/d{depth:g}/s{sample:03d}"
                found.append(
                    Question(
                        key=name,
                        unit=f"s{sample:03d}",
                        context=name,
                        prompt=stack.prompts[0],
                        golds=numbers[:1],
                        candidates=sorted(numbers),
                        new_tokens=16,
                        length=length,
                        depth=depth,
                        reached=stack.reached[0],
                    )
                )
        return found


class NeedleMultiKey(NeedleTask):
    """A needle at each depth of one context."""

    def make(
        self, tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int,
        stories: str | None = None,
    ) -> list[Question]:  # fmt: skip
        """A question for each depth. Needles at random places fill the context up to `LEAST_KEYS`."""
        found: list[Question] = []
        for sample in range(samples):
            rng = random.Random(f"{seed}/multi_key/{sample}")
            more = [rng.random() for _ in range(LEAST_KEYS - len(depths))]
            places = sorted([*(depth / 100 for depth in depths), *more])
            keys, numbers = _keys(rng, len(places)), _numbers(rng, len(places))
            wanted = [places.index(depth / 100) for depth in depths]
            background = background_text(corpus, rng, tokens=length)
            stack = build_haystack(
                tokenizer,
                head=_HEAD,
                tails=[_tail(keys[index]) for index in wanted],
                background=background,
                facts=[
                    Fact(_needle(key, number), place)
                    for key, number, place in zip(keys, numbers, places, strict=True)
                ],
                length=length,
            )
            for depth, index, prompt in zip(depths, wanted, stack.prompts, strict=True):
                found.append(
                    Question(
                        key=f"{self.name}/L{length}/d{depth:g}/s{sample:03d}",
                        unit=f"s{sample:03d}",
                        context=f"{self.name}/L{length}/s{sample:03d}",
                        prompt=prompt,
                        golds=[numbers[index]],
                        candidates=sorted(numbers),
                        new_tokens=16,
                        length=length,
                        depth=depth,
                        reached=stack.reached[index],
                    )
                )
        return found


class NeedleMultiValue(NeedleTask):
    """Several numbers of one key, spread evenly over the context."""

    def make(
        self, tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float] = (), samples: int, seed: int,
        stories: str | None = None,
    ) -> list[Question]:  # fmt: skip
        """One question for each sample, about all `VALUES` numbers."""
        found: list[Question] = []
        for sample in range(samples):
            rng = random.Random(f"{seed}/multi_value/{sample}")
            [key] = _keys(rng, 1)
            numbers = _numbers(rng, VALUES)
            tail = (
                f"\n\nQuestion: What are the {VALUES} locker numbers of the {key}?\n"
                f"Answer: The {VALUES} locker numbers of the {key} are"
            )
            stack = build_haystack(
                tokenizer,
                head=_HEAD,
                tails=[tail],
                background=background_text(corpus, rng, tokens=length),
                facts=[Fact(_needle(key, number), (i + 0.5) / VALUES) for i, number in enumerate(numbers)],
                length=length,
            )
            name = f"{self.name}/L{length}/s{sample:03d}"
            found.append(
                Question(
                    key=name,
                    unit=f"s{sample:03d}",
                    context=name,
                    prompt=stack.prompts[0],
                    golds=numbers,
                    new_tokens=12 * VALUES,
                    length=length,
                )
            )
        return found


def _tail(key: str) -> str:
    return f"\n\nQuestion: What is the locker number of the {key}?\nAnswer: The locker number of the {key} is"


def _needle(key: str, number: str) -> str:
    return f"The locker number of the {key} is {number}."


def _keys(rng: random.Random, count: int) -> list[str]:
    return rng.sample([f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS], count)


def _numbers(rng: random.Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(10_000, 100_000), count)]


class _Needle(Family):
    name = "needle"
    tasks = (
        NeedleSingle(name="needle_single", what="one number in long text", ranks=True),
        NeedleMultiKey(name="needle_multi_key", what="one number among several", ranks=True),
        NeedleMultiValue(name="needle_multi_value", what="several numbers for one key", takes=MADE_UP),
    )


NEEDLE = _Needle()
