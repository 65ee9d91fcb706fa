"""Where a curve of `limit` crosses a level, and which places its documents do not exclude.

A curve is given by document: `beyond` [D, B] is what each of B bins, or distances, lies beyond the level (excess -
tolerance, level - benefit), summed over the windows of the document. With S(k) the sum over all documents and the
first k bins, the crossing is the last argmin of S. It is where the isotonic (rising) fit of the curve crosses the
level, so a single bad bin does not count and no smoothing width needs choosing.

A stretch that is clearly beyond the level ends the curve, whatever comes after it: one last crossing does not decide.
The interval inverts a test: it holds each k whose S(k) is not clearly above the least. Clear is Student's t over the
documents, which holds for few of them too; a bootstrap of four documents cannot leave their range.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.statistics import students_t

_INTERVAL_TAIL = 0.05
"""Of one place. The least of S is of the same documents, so that the interval as a whole covers 95 % or more."""
_STRETCH_TAIL = 0.005
"""Of one stretch: many are looked at."""


@dataclass(frozen=True)
class Crossing:
    """How many steps of a curve are within its level."""

    steps: int
    low: int
    high: int
    """The fewest and the most steps that the documents do not exclude."""
    stop: int
    """Where the curve clearly returns; the number of its steps where it does not."""
    back: int
    """The last step of what returns; `stop` where nothing does."""


def crossing(beyond: NDArray[np.float64]) -> Crossing:
    """Where a curve [D, B] crosses its level. With one document the interval is the whole curve."""
    sums = np.concatenate([np.zeros((len(beyond), 1)), np.cumsum(beyond, axis=1)], axis=1)
    stop, back = _return(sums)
    sums = sums[:, : stop + 1]
    steps = int(last_argmin(sums.sum(axis=0)))
    low, *_, high = [*np.flatnonzero(~clearly_above(sums - sums[:, [steps]], _INTERVAL_TAIL))] * 2
    return Crossing(steps, int(low), int(high), stop, back)


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
