"""Needle tasks: a made-up number in a long text, to be found again. Nothing is downloaded.

needle_single       one number in the context, one question
needle_multi_key    several keys with a number each; every question is about one of them, the others mislead.
                    One context holds a needle at each depth, and is read once for all of them
needle_multi_value  several numbers for one key; all are asked for

A sample uses the same background, keys and numbers at every length and depth, so that these are paired.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from lengthwise.evaluation.haystack import Fact, background_text, build_haystack
from lengthwise.evaluation.questions import Question
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


def needle_single(
    tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int
) -> list[Question]:
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
            name = f"needle_single/L{length}/d{depth:g}/s{sample:03d}"
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


def needle_multi_key(
    tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int
) -> list[Question]:
    """A needle at each depth of one context (and others, up to `LEAST_KEYS`), a question for each depth."""
    found: list[Question] = []
    for sample in range(samples):
        rng = random.Random(f"{seed}/multi_key/{sample}")
        places = sorted([*(depth / 100 for depth in depths), *_more_places(rng, LEAST_KEYS - len(depths))])
        keys, numbers = _keys(rng, len(places)), _numbers(rng, len(places))
        asked = [places.index(depth / 100) for depth in depths]
        background = background_text(corpus, rng, tokens=length)
        stack = build_haystack(
            tokenizer,
            head=_HEAD,
            tails=[_tail(keys[index]) for index in asked],
            background=background,
            facts=[
                Fact(_needle(key, number), place)
                for key, number, place in zip(keys, numbers, places, strict=True)
            ],
            length=length,
        )
        for depth, index, prompt in zip(depths, asked, stack.prompts, strict=True):
            found.append(
                Question(
                    key=f"needle_multi_key/L{length}/d{depth:g}/s{sample:03d}",
                    unit=f"s{sample:03d}",
                    context=f"needle_multi_key/L{length}/s{sample:03d}",
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


def needle_multi_value(
    tokenizer: Any, corpus: Corpus, *, length: int, depths: Sequence[float], samples: int, seed: int
) -> list[Question]:
    """All of `VALUES` numbers of one key, spread evenly over the context; `depths` do not matter."""
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
        name = f"needle_multi_value/L{length}/s{sample:03d}"
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


def _more_places(rng: random.Random, count: int) -> list[float]:
    return [rng.random() for _ in range(max(0, count))]


def _needle(key: str, number: str) -> str:
    return f"The locker number of the {key} is {number}."


def _keys(rng: random.Random, count: int) -> list[str]:
    return rng.sample([f"{colour} {thing}" for colour in _COLOURS for thing in _THINGS], count)


def _numbers(rng: random.Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(10_000, 100_000), count)]
