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
from collections.abc import Iterator
from functools import partial
from typing import Any

from lengthwise.evaluation.haystack import MADE_UP, Context, Fact, background_text, labelled, made_up
from lengthwise.evaluation.scoring import contained_share
from lengthwise.evaluation.task import Family, Question
from lengthwise.text.corpus import Corpus

_LEAST_KEYS = 4
_VALUES = 3
_CANDIDATES = 8

_HEAD = (
    "A storekeeper wrote down some locker numbers in the middle of the text below. "
    "Remember them; you will be asked for them at the end.\n\n"
)
_COLOURS = ("amber", "blue", "copper", "golden", "green", "grey", "ivory", "purple", "red", "silver", "white")
_THINGS = (
    "anchor", "basket", "bell", "candle", "feather", "hammer", "kettle", "ladder", "lantern", "mirror", "saddle",
)  # fmt: skip


def _single(settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """A context for each depth."""
    rng = random.Random(f"{settings.seed}/single/{sample}")
    keys, numbers = _keys(rng, 1), _numbers(rng, _CANDIDATES)
    background = background_text(corpus, rng, tokens=length)
    for depth in sorted(settings.depths):
        yield background, [_needle(keys[0], numbers[0], depth / 100)], [_question(keys, numbers, 0, depth)]


def _multi_key(settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """A needle at each depth of one context. Needles at random places fill it up to `_LEAST_KEYS`."""
    rng = random.Random(f"{settings.seed}/multi_key/{sample}")
    depths = sorted(settings.depths)
    more = [rng.random() for _ in range(_LEAST_KEYS - len(depths))]
    places = sorted([*(depth / 100 for depth in depths), *more])
    keys, numbers = _keys(rng, len(places)), _numbers(rng, len(places))
    questions = [_question(keys, numbers, places.index(depth / 100), depth) for depth in depths]
    background = background_text(corpus, rng, tokens=length)
    yield background, list(map(_needle, keys, numbers, places)), questions


def _multi_value(settings: Any, corpus: Corpus, length: int, sample: int) -> Iterator[Context]:
    """One question about all `_VALUES` numbers of a key, which are spread evenly over the context."""
    rng = random.Random(f"{settings.seed}/multi_value/{sample}")
    [key], numbers = _keys(rng, 1), _numbers(rng, _VALUES)
    asked = f"What are the {_VALUES} locker numbers of the {key}?"
    tail = f"\n\nQuestion: {asked}\nAnswer: The {_VALUES} locker numbers of the {key} are"
    question = Question(prompt=tail, golds=numbers, new_tokens=12 * _VALUES)
    facts = [_needle(key, number, (index + 0.5) / _VALUES) for index, number in enumerate(numbers)]
    yield background_text(corpus, rng, tokens=length), facts, [question]


def _question(keys: list[str], numbers: list[str], fact: int, depth: float) -> Question:
    key = keys[fact]
    asked, told = f"What is the locker number of the {key}?", f"The locker number of the {key} is"
    return labelled(asked, told, numbers[fact], numbers, new_tokens=16, depth=depth, fact=fact)


def _needle(key: str, number: str, place: float) -> Fact:
    return f"The locker number of the {key} is {number}.", place


def _keys(rng: random.Random, count: int) -> list[str]:
    return rng.sample([f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS], count)


def _numbers(rng: random.Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(10_000, 100_000), count)]


_task = partial(made_up, head=_HEAD, version=2, metric="contained", score=contained_share)

NEEDLE = Family(
    "needle",
    (
        _task("needle_single", _single, what="one number in long text", ranks=True),
        _task("needle_multi_key", _multi_key, what="one number among several", ranks=True),
        _task("needle_multi_value", _multi_value, what="several numbers for one key", takes=MADE_UP),
    ),
)
