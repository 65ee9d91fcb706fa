"""The two numbers of `limit` from totals by document: with an interval that supports them, or not at all.

`sound_up_to` comes from one curve, `used_up_to` from two: of a passage at the window's beginning, and of one inside
it. A model that keeps its first tokens and forgets the rest uses the first passage alone.

A curve is given by document: `beyond` [D, B] is what each of B bins, or distances, lies beyond the level (excess -
tolerance, level - benefit), summed over the windows of the document. With S(k) the sum over all documents and the
first k bins, the crossing is the last argmin of S. It is where the isotonic (rising) fit of the curve crosses the
level, so a single bad bin does not count and no smoothing width needs choosing.

A stretch that is clearly beyond the level ends the curve, whatever comes after it: one last crossing does not decide.
The interval inverts a test: it holds each k whose S(k) is not clearly above the least. Clear is Student's t over the
documents, which holds for few of them too; a bootstrap of four documents cannot leave their range.

`limit` is the `Limit` with its `sizes`, `distances`, `inside`, `tolerance` and `share`, of resolved settings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.statistics import students_t

LEAST_DOCUMENTS = 3
"""With fewer there is no number. `checks/lab/limit_null.py` simulates coverage for each number of documents."""
LEAST_BENEFIT = 0.05
"""Nats a token. A smaller benefit does not count, however sure it is."""
_NEARBY_TAIL = 0.025
_INTERVAL_TAIL = 0.05
"""Of one place. The least of S is of the same documents, so that the interval as a whole covers 95 % or more."""
_STRETCH_TAIL = 0.005
"""Of one stretch: many are looked at."""


@dataclass(frozen=True)
class _Crossing:
    """How many steps of a curve are within its level."""

    steps: int
    low: int
    high: int
    """The fewest and the most steps that the documents do not exclude."""
    stop: int
    """Where the curve clearly returns; the number of its steps where it does not."""
    back: int
    """The last step of what returns; `stop` where nothing does."""


def crossing(beyond: NDArray[np.float64]) -> _Crossing:
    """Where a curve [D, B] crosses its level. With one document the interval is the whole curve."""
    sums = np.concatenate([np.zeros((len(beyond), 1)), np.cumsum(beyond, axis=1)], axis=1)
    stop, back = _return(sums)
    sums = sums[:, : stop + 1]
    steps = int(last_argmin(sums.sum(axis=0)))
    low, *_, high = [*np.flatnonzero(~clearly_above(sums - sums[:, [steps]], _INTERVAL_TAIL))] * 2
    return _Crossing(steps, int(low), int(high), stop, back)


def last_argmin(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """The last place of the least value, along the last axis."""
    return values.shape[-1] - 1 - values[..., ::-1].argmin(axis=-1)


def clearly_above(totals: NDArray[np.float64], tail: float) -> NDArray[np.bool_]:
    """Whether the sum over D documents [D, ...] is above 0 by more than Student's t allows for noise."""
    count = len(totals)
    if count < 2:
        return np.zeros(totals.shape[1:], dtype=bool)
    error = totals.std(axis=0, ddof=1) / np.sqrt(count)
    return totals.mean(axis=0) > students_t(1 - tail, count - 1) * error


def _return(sums: NDArray[np.float64]) -> tuple[int, int]:
    """Of cumulative sums [D, B + 1]: where the curve returns after a clear stretch beyond, and up to where."""
    total, places = sums.sum(axis=0), np.arange(sums.shape[1])
    last = int(places[-1])
    least = np.maximum.accumulate(np.where(total <= np.minimum.accumulate(total), places, 0))
    begun = clearly_above(sums - sums[:, least], _STRETCH_TAIL)
    if not begun.any():
        return last, last
    end = int(begun.argmax())
    # The stretch ends where the sum is greatest before it clearly falls again.
    total = np.where(places < least[end], -np.inf, total)
    peak = np.maximum.accumulate(np.where(total >= np.maximum.accumulate(total), places, 0))
    falls = clearly_above(sums[:, peak] - sums, _STRETCH_TAIL) & (places > end)
    if not falls.any():
        return last, last
    stop = int(peak[falls.argmax()])
    return stop, stop + int(last_argmin(total[stop:]))


@dataclass(frozen=True)
class Headline:
    """A limit in tokens; no value where the documents support none."""

    value: float | None
    low: float
    high: float
    open: bool
    """Whether the curve has no end: the value is a lower bound."""
    stop: int
    """The steps of the curve that the value is made from."""
    gap: tuple[int, int] | None = None
    """Where the curve is clearly beyond its level between two stretches within; the value is before it."""
    again: tuple[int, int] | None = None
    """The stretch after the gap."""
    beginning: float | None = None
    """Up to where the window's beginning is used, where what is inside is clearly used less far."""

    def supported(self, documents: int, *, some_end: bool) -> Headline:
        """Without its value if there are too few documents, or if they exclude no place at all."""
        kept = some_end and documents >= LEAST_DOCUMENTS
        return self if kept else replace(self, value=None, gap=None, again=None, beginning=None)


def sound_headline(limit: Any, totals: NDArray[np.float64]) -> Headline:
    """`sound_up_to` with its interval.

    Totals are [D, B + 1]: the summed excess of each bin of rows, the first after the reference; the windows.
    """
    _, start, width = limit.sizes
    beyond = totals[:, :-1] - limit.tolerance * width * totals[:, -1:]
    places = start + width * np.arange(beyond.shape[1] + 1)
    found, bins = crossing(beyond), beyond.shape[1]
    # Between two bins the true place lies within one bin of the edge.
    low, high = max(found.low - 1, 0), min(found.high + 1, bins)
    head = _headline(found, places, (places[low], places[high]), begins=places, ends=places)
    return head.supported(len(totals), some_end=low > 0 or high < bins)


def sound_estimate(limit: Any, totals: NDArray[np.float64], *, head: Headline) -> NDArray[np.float64]:
    """The number of R samples [R, B + 1], from the part of the curve that `head` is of."""
    _, start, width = limit.sizes
    excess = totals[:, : head.stop] / (totals[:, -1:] * width)
    return start + width * _crossings(excess - limit.tolerance).astype(np.float64)


def nearby_distances(limit: Any) -> int:
    """How many of the distances count as nearby: those up to the reference."""
    return max(1, sum(distance <= limit.sizes[1] for distance in limit.distances))


def _benefits(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Nats a token at every distance, [R, K + H], from the totals of `used_headline`."""
    count = totals.shape[1] // 2
    return (totals[:, count : 2 * count] - totals[:, :count]) / totals[:, -1:]


def benefit_nearby(limit: Any, totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean benefit nearby: [R]."""
    return _benefits(totals)[:, : nearby_distances(limit)].mean(axis=1)


def nearby_interval(limit: Any, totals: NDArray[np.float64]) -> tuple[float, float] | tuple[None, None]:
    """Its interval from totals by document; it is above LEAST_BENEFIT where the benefit counts."""
    count, targets = len(totals), totals[:, -1]
    if count < 2:
        return None, None
    mean = float(benefit_nearby(limit, totals.sum(axis=0, keepdims=True))[0])
    away = (benefit_nearby(limit, totals) - mean) * targets / targets.mean()
    error = students_t(1 - _NEARBY_TAIL, count - 1) * float(away.std(ddof=1)) / math.sqrt(count)
    return mean - error, mean + error


def used_level(limit: Any, totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """The benefit from which context counts as used: [R]."""
    return np.maximum(limit.share * benefit_nearby(limit, totals), LEAST_BENEFIT)


def used_headline(limit: Any, totals: NDArray[np.float64]) -> Headline:
    """`used_up_to` with its interval.

    Totals are [D, 2 (K + H) + 1]: losses after the same passage, then after a different one, and the targets. Of the
    passage at the beginning at K distances, then of the one inside at H distances.
    """
    (start, inside_distances), distances = limit.inside, limit.distances
    documents, count, last = len(totals), len(distances), distances[-1]
    # Sums, so that a document with more windows counts more.
    benefits, targets = _benefits(totals) * totals[:, -1:], totals[:, -1:]
    nearby = benefits[:, : nearby_distances(limit)].mean(axis=1, keepdims=True)
    least, _ = nearby_interval(limit, totals)
    if least is None or least <= LEAST_BENEFIT:
        return Headline(None, 0.0, last, False, count)
    by_share = limit.share * nearby.sum() >= LEAST_BENEFIT * targets.sum()
    beyond = (limit.share * nearby if by_share else LEAST_BENEFIT * targets) - benefits
    head = _on_grid(crossing(beyond[:, :count]), distances)
    # Where the beginning is no longer used, what is inside shows nothing of an end.
    asked = sum(start + distance <= (head.value or 0) for distance in inside_distances)
    if asked:
        within = crossing(beyond[:, count : count + asked])
        inside = _on_grid(within, inside_distances)
        if within.high < asked:
            head = replace(inside, open=False, gap=None, again=None, beginning=head.value)
        elif within.low < asked:
            head = replace(head, low=min(head.low, inside.low))
    return head.supported(documents, some_end=head.low > 0 or head.high < last)


def used_estimate(limit: Any, totals: NDArray[np.float64], *, head: Headline) -> NDArray[np.float64]:
    """The number of R samples, from the part of the curve that `head` is of; NaN without a benefit nearby."""
    grid = limit.distances if head.beginning is None else limit.inside[1]
    first = 0 if head.beginning is None else len(limit.distances)
    benefits = _benefits(totals)[:, first : first + head.stop]
    found = _places(grid)[_crossings(used_level(limit, totals)[:, None] - benefits)]
    return np.where(benefit_nearby(limit, totals) >= LEAST_BENEFIT, found, np.nan)


def _crossings(beyond: NDArray[np.float64]) -> NDArray[np.int64]:
    """The steps of each curve [R, B] within its level."""
    return last_argmin(np.concatenate([np.zeros((len(beyond), 1)), np.cumsum(beyond, axis=1)], axis=1))


def _places(grid: Sequence[int]) -> NDArray[np.float64]:
    """By steps: the (geometric) middle of the last distance within and the first beyond; 0 and the greatest."""
    distances = np.asarray(grid, dtype=np.float64)
    return np.concatenate([[0.0], np.sqrt(distances[:-1] * distances[1:]), distances[-1:]])


def _on_grid(found: _Crossing, grid: Sequence[int]) -> Headline:
    """A crossing as distances: its interval ends at distances that were measured."""
    ends = (0, *grid, grid[-1])
    return _headline(found, _places(grid), (ends[found.low], ends[found.high + 1]), begins=grid, ends=ends)


def _headline(found: _Crossing, places: Any, interval: Any, *, begins: Any, ends: Any) -> Headline:
    """A crossing whose steps end at `places`; stretches of the curve go from one of `begins` to one of `ends`."""
    steps, gap, again = len(places) - 1, None, None
    if found.stop < steps:
        gap = int(begins[found.steps]), int(ends[found.stop])
        again = int(begins[found.stop]), int(ends[found.back])
    low, high = map(float, interval)
    return Headline(float(places[found.steps]), low, high, found.steps == steps, found.stop, gap, again)
