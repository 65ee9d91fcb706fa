"""Spearman's rank correlation with an interval over the things ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
SEED = 20250713
FEWEST = 5
"""Fewer things give no interval."""
_MOST_UNDEFINED = 0.05


@dataclass(frozen=True)
class Correlation:
    """A rank correlation; None where one side is constant, or the interval is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Spearman's rho (ties share their mean rank) with a 95 % percentile bootstrap interval over pairs.

    Pairs are resampled 2000 times. There is no interval for fewer than 5 pairs, or where one side is constant in over
    5 % of the resamples; fewer such resamples are left out.
    """
    assert len(x) == len(y)
    first, second = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    n = len(first)
    value = _rho(first, second)
    if n < FEWEST or value is None:
        return Correlation(value, None, None, n)
    rng = np.random.default_rng(SEED)
    drawn = [_rho(first[at], second[at]) for at in rng.integers(n, size=(RESAMPLES, n))]
    defined = [one for one in drawn if one is not None]
    if len(defined) < (1 - _MOST_UNDEFINED) * RESAMPLES:
        return Correlation(value, None, None, n)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Correlation(value, float(low), float(high), n)


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs.

    Example:
        >>> ranks(np.array([10.0, 30.0, 10.0])).tolist()
        [1.5, 3.0, 1.5]
    """
    below = (values[:, None] > values[None, :]).sum(1)
    equal = (values[:, None] == values[None, :]).sum(1)
    return below + (equal + 1) / 2


def _rho(x: np.ndarray, y: np.ndarray) -> float | None:
    if len(x) == 0 or (x == x[0]).all() or (y == y[0]).all():
        return None
    return float(np.corrcoef(ranks(x), ranks(y))[0, 1])
