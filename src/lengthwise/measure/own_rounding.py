"""How far a side differs from itself: when the same tokens are read again, and when more text follows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lengthwise.subjects.reading import Predictor, Read, Reading
from lengthwise.subjects.rounding import ELSEWHERE, LEAST, LEAST_ELSEWHERE, beginning

BEYOND_ROUNDING = 3.0
"""How many times as far apart as rounding a text read alone and in a longer one must be, to depend on the length."""


def own_rounding(
    model: Predictor, reading: Reading, read: Read, edges: Sequence[int], *, dtype: str | None = None
) -> dict[str, Any] | None:
    """How far a side is from itself where rounding alone should differ: sums of |d| by bin, tokens, the largest.

    A text is read again alone and shorter. What differs then may be no rounding: a side may predict the same tokens
    otherwise when more text follows, and the same again when it reads the same. That is `by_length`, in nats per
    token, and the rounding is that of the short text. The rows from `edges[0]` on count.
    """
    floor = _worst(model.again(reading, read, dtype=dtype), reading, edges)
    short = beginning(reading)
    if floor is None or len(short.tokens) == len(reading.tokens):
        return floor
    (alone,) = model.read([short])
    longer = _worst([(alone, read)], short, edges)
    least = ELSEWHERE if model.dtype is None else LEAST.get(dtype or model.dtype, LEAST_ELSEWHERE)
    if longer is None or _mean(longer) < max(BEYOND_ROUNDING * least, _mean(floor) / 2):
        return floor
    # A text that is read again as long as it is.
    while len(beginning(short).tokens) < len(short.tokens):
        short = beginning(short)
    own = _worst(model.again(short, *model.read([short]), dtype=dtype), short, edges)
    if own is None or _mean(longer) < BEYOND_ROUNDING * _mean(own):
        return floor
    (twice,) = model.read([reading])
    again = _worst([(twice, read)], reading, edges)
    # A side that does not repeat itself says nothing about lengths.
    if again is None or _mean(again) > _mean(longer) / BEYOND_ROUNDING:
        return floor
    return {**own, "by_length": _mean(longer)}


def _worst(
    pairs: Sequence[tuple[Read, Read]], reading: Reading, edges: Sequence[int]
) -> dict[str, Any] | None:
    """How far the two of a pair are apart, in the worst of the pairs; None without a pair."""
    from lengthwise.measure.distributions import losses_of

    found = []
    for pair in pairs:
        # What a prefix cache changes is found apart, beside this floor.
        one, other = (each if each.cold is None else replace(each, losses=each.cold) for each in pair)
        shortest = min(len(each.rows) - edges[0] if each.rows else len(each.losses) for each in (one, other))
        labels = reading.labels[:shortest]
        losses = [losses_of(each, labels, first=edges[0]) for each in (one, other)]
        apart = np.abs((losses[1] - losses[0]).numpy())
        begins = [edge - edges[0] for edge in edges if edge - edges[0] < shortest]
        tokens = np.diff([*begins, shortest]).tolist()
        sums = np.add.reduceat(apart, begins).tolist()
        found.append({"sums": sums, "tokens": tokens, "largest": float(apart.max())})
    return max(found, key=lambda each: sum(each["sums"]), default=None)


def _mean(floor: dict[str, Any]) -> float:
    return sum(floor["sums"]) / sum(floor["tokens"])
