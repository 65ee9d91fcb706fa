"""Where a curve over positions changes: the split into two constants that fits best, and how sharply it is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

EXACT = 1e-9
"""Nats a token up to which both sides are equal to the last bit."""
_KNOWN = 2.0
"""A split is as good as the best one if its squared error is at most that of the best plus so many variances."""
_SHORTLY = 2
"""How many stretches before the first clear one may already belong to what begins."""


class Stretch(NamedTuple):
    """The mean of a curve over positions `begin` to `end`, of `n` tokens."""

    begin: int
    end: int
    mean: float
    n: int


class Split(NamedTuple):
    """Two constants in place of one: `before` up to position `place`, `after` from there on."""

    place: int
    low: int
    """The place lies in low .. high: every split there fits about as well."""
    high: int
    before: float
    after: float
    gradual: bool
    """Whether a line in the logarithm of the position fits better than the step."""


def mean(curve: Sequence[Stretch]) -> float:
    """The mean over all tokens of a curve."""
    return sum(part.mean * part.n for part in curve) / sum(part.n for part in curve)


def best_split(curve: Sequence[Stretch]) -> Split | None:
    """The split of least squares; None for a curve of less than two stretches.

    With stretches i of n_i tokens and means m_i it minimises the sum of n_i (m_i - its side's mean)^2. The place is
    given with the range of splits whose error is within `_KNOWN` variances of the least. A step within a stretch
    gives it a mean between both sides' means, which says where in it the step is.
    """
    if len(curve) < 2:
        return None
    n, m = (np.array([getattr(part, name) for part in curve], dtype=np.float64) for name in ("n", "mean"))
    errors = np.array([_error(n[:k], m[:k]) + _error(n[k:], m[k:]) for k in range(1, len(curve))])
    best = int(errors.argmin()) + 1
    variance = errors.min() / max(1, len(curve) - 2)
    alike = np.flatnonzero(errors <= errors.min() + _KNOWN * variance) + 1
    low, high = int(alike.min()), int(alike.max())
    before, after = mean(curve[:best]), mean(curve[best:])

    def share(index: int) -> float:
        """How much of a stretch is as what follows."""
        return float(np.clip((m[index] - before) / (after - before or 1.0), 0.0, 1.0))

    size = curve[best].end - curve[best].begin
    earliest = curve[best].begin - round(share(best - 1) * (curve[best - 1].end - curve[best - 1].begin))
    latest = curve[best].begin + round((1 - share(best)) * size)
    middles = np.array([(part.begin + part.end) / 2 + 1 for part in curve])
    return Split(
        place=curve[best].begin,
        low=min(earliest, curve[low].begin),
        high=max(latest, curve[high].begin),
        before=before,
        after=after,
        gradual=len(curve) > 3 and _line_error(n, m, np.log(middles)) < errors.min(),
    )


def beginning(curve: Sequence[Stretch], tolerance: float) -> tuple[int, int] | None:
    """The tokens between which a curve leaves its level before the best split; None for less than two stretches.

    A gradual beginning starts before the split, at the first stretch that is twice the tolerance. Where none is, it
    is the first that is not exact.
    """
    if (split := best_split(curve)) is None:
        return None
    level, known_equal = 2 * tolerance, [part for part in curve if part.begin < split.place]
    if first_above(curve, level) is None and split.after > 0.1 * tolerance:
        level = EXACT
    index = first_above(curve, level)
    if not index or index > len(known_equal):
        # Nothing is equal before it, or nothing is above before the split.
        return split.low, split.high
    between = curve[index : len(known_equal)]
    if sum(part.mean > level for part in between) * 2 < len(between):
        return min(split.low, curve[index].begin), split.high
    # Where in a stretch it begins its mean does not say: what begins may grow. Shortly before it what is not exact
    # may belong to it.
    last_exact = first_above(curve, EXACT) or index
    low = last_exact if 0 < index - last_exact <= _SHORTLY else index
    return curve[low].begin, curve[index].end


def first_above(curve: Sequence[Stretch], level: float) -> int | None:
    """The index of the first stretch whose mean is above a level."""
    return next((index for index, part in enumerate(curve) if part.mean > level), None)


def _error(n: NDArray[np.float64], m: NDArray[np.float64]) -> float:
    """The squared distance of stretches from their common mean."""
    return float((n * (m - np.average(m, weights=n)) ** 2).sum())


def _line_error(n: NDArray[np.float64], m: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """The squared distance of stretches from the line through them that fits best."""
    x = x - np.average(x, weights=n)
    slope = (n * x * m).sum() / (n * x * x).sum()
    return _error(n, m - slope * x)
