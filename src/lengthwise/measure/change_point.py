"""Where a curve over positions changes: the split into two constants that fits best, and how sharply it is known."""

from __future__ import annotations

import itertools
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


_QUIETER = 4.0
"""How many times as far apart the neighbours of a stretch must be for it to be alike again."""


class Stretch(NamedTuple):
    """The mean of a curve over positions `begin` to `end`, of `n` tokens."""

    begin: int
    end: int
    mean: float
    n: int


def mean(curve: Sequence[Stretch]) -> float:
    """The mean over all tokens of a curve."""
    return sum(part.mean * part.n for part in curve) / sum(part.n for part in curve)


def best_split(curve: Sequence[Stretch]) -> tuple[int, int, int] | None:
    """The stretch from which on another constant fits, by least squares, and the tokens between which it begins.

    With stretches i of n_i tokens and means m_i it minimises the sum of n_i (m_i - its side's mean)^2. In the tokens
    every split fits about as well, its error within `_KNOWN` variances of the least. A step within a stretch gives it
    a mean between both sides' means, which says where in it the step is. None for a curve of less than two stretches.
    """
    if len(curve) < 2:
        return None
    n, m = (np.array([getattr(part, name) for part in curve], dtype=np.float64) for name in ("n", "mean"))
    errors = np.array([_error(n[:k], m[:k]) + _error(n[k:], m[k:]) for k in range(1, len(curve))])
    best = int(errors.argmin()) + 1
    variance = errors.min() / max(1, len(curve) - 2)
    alike = np.flatnonzero(errors <= errors.min() + _KNOWN * variance) + 1
    before, after, place = mean(curve[:best]), mean(curve[best:]), curve[best].begin

    def share(index: int) -> float:
        """How much of a stretch is as what follows."""
        return float(np.clip((m[index] - before) / (after - before or 1.0), 0.0, 1.0))

    earliest = place - round(share(best - 1) * (curve[best - 1].end - curve[best - 1].begin))
    latest = place + round((1 - share(best)) * (curve[best].end - place))
    return best, min(earliest, curve[alike.min()].begin), max(latest, curve[alike.max()].begin)


def beginning(curve: Sequence[Stretch], tolerance: float) -> tuple[int, int] | None:
    """The tokens between which a curve leaves its level before the best split; None for less than two stretches.

    A gradual beginning starts before the split, at the first stretch that is twice the tolerance. Where none is, it
    is the first that is not exact.
    """
    if (split := best_split(curve)) is None:
        return None
    (best, low, high), level = split, 2 * tolerance
    if first_above(curve, level) is None and mean(curve[best:]) > 0.1 * tolerance:
        level = EXACT
    index = first_above(curve, level)
    if not index or index > best:
        # Nothing is equal before it, or nothing is above before the split.
        return low, high
    between = curve[index:best]
    if sum(part.mean > level for part in between) * 2 < len(between):
        return min(low, curve[index].begin), high
    # Where in a stretch it begins its mean does not say: what begins may grow. Shortly before it what is above the
    # tolerance, or the first that is not exact, may belong to it.
    shortly = range(max(1, index - _SHORTLY), index)
    inexact = first_above(curve, EXACT)
    first = next((i for i in shortly if i == inexact or curve[i].mean > tolerance), index)
    return curve[first].begin, curve[index].end


def alike_again(
    curve: Sequence[Stretch], allowed: Sequence[float], *, after: int, to_end: bool
) -> tuple[int, int] | None:
    """Where both sides are alike after others: the longest such part from `after` on, perhaps one up to the end.

    It is within what is allowed, and a quarter of what is beside it at most.
    """
    found = []
    for above, group in itertools.groupby(range(len(curve)), lambda i: curve[i].mean > allowed[i]):
        begin, *_, last = [*group] * 2
        if above or not begin or curve[begin].begin < after or (last + 1 == len(curve) and not to_end):
            continue
        beside = [curve[begin - 1], *curve[last + 1 : last + 2]]
        if _QUIETER * mean(curve[begin : last + 1]) <= min(part.mean for part in beside):
            found.append((curve[begin].begin, curve[last].end))
    return max(found, key=lambda part: part[1] - part[0], default=None)


def first_above(curve: Sequence[Stretch], level: float) -> int | None:
    """The index of the first stretch whose mean is above a level."""
    return next((index for index, part in enumerate(curve) if part.mean > level), None)


def _error(n: NDArray[np.float64], m: NDArray[np.float64]) -> float:
    """The squared distance of stretches from their common mean."""
    return float((n * (m - np.average(m, weights=n)) ** 2).sum())
