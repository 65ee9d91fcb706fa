"""Which of several numbers goes with a score over models: correlations, partial ones, and which of two is greater."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np

from lengthwise.measure.over_seeds import POWER
from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.tables import Estimate
from lengthwise.results import SIGNIFICANCE
from lengthwise_studies.claims import NOT_RUN, OPPOSITE, REPRODUCED, Found

FEWEST = 12
"""Models that a verdict needs."""
Values = Sequence[float]


def partial_correlation(x: Values, y: Values, given: Sequence[Values] = ()) -> float:
    """Pearson's correlation of what the straight line in `given` leaves of x and of y; NaN where nothing varies."""
    both = np.column_stack([x, y])
    line = np.column_stack([np.ones(len(x)), *given])
    left = both - line @ np.linalg.lstsq(line, both, rcond=None)[0]
    products = left.T @ left
    spread = math.sqrt(products[0, 0] * products[1, 1])
    scale = math.sqrt(both.var(axis=0).prod()) * len(x)
    return float(products[0, 1]) / spread if spread > 1e-12 * max(scale, 1e-300) else math.nan


def williams_t(one: float, other: float, between: float, n: int) -> float:
    """Williams's t, n - 3 degrees of freedom, of r(x, y) = `one` against r(z, y) = `other`, with r(x, z) = `between`.

        t = (r_xy - r_zy) sqrt((n - 1)(1 + r_xz) / (2 (n - 1) / (n - 3) |R| + m^2 (1 - r_xz)^3)),
        |R| = 1 - r_xy^2 - r_zy^2 - r_xz^2 + 2 r_xy r_zy r_xz,    m = (r_xy + r_zy) / 2

    Source: Steiger 1980, "Tests for comparing elements of a correlation matrix", Eq. 7.
    """
    determinant = 1 - one**2 - other**2 - between**2 + 2 * one * other * between
    mean = (one + other) / 2
    below = 2 * (n - 1) / (n - 3) * determinant + mean**2 * (1 - between) ** 3
    return (one - other) * math.sqrt((n - 1) * (1 + between) / below)


@dataclass(frozen=True)
class Correlation:
    """The test of a statement on models: `of` correlates positively with `score`.

    Args:
        of: the predictor.
        score: what it is to go with.
        given: predictors whose part is taken out.
        stronger_than: instead, another predictor whose correlation is to be smaller in size.
    """

    of: str
    score: str
    given: tuple[str, ...] = ()
    stronger_than: str | None = None

    def __call__(self, numbers: Mapping[str, Mapping[str, float]]) -> Found:
        """The correlation with its 95 % interval by Fisher's z, or the difference of two in size.

        Args:
            numbers: model -> number -> value. Models without one of the numbers are left out.
        """
        names = [self.of, self.score, *self.given, *filter(None, [self.stronger_than])]
        there = [own for own in numbers.values() if all(name in own for name in names)]
        n = len(there)
        if n < FEWEST:
            return Found(verdict=NOT_RUN, n=n)
        x, y, *others = ([own[name] for own in there] for name in names)
        if self.stronger_than is not None:
            [z] = others
            one, other = partial_correlation(x, y), partial_correlation(z, y)
            # Signs are turned so that both correlations are positive.
            between = partial_correlation(x, z) * math.copysign(1, one) * math.copysign(1, other)
            r = abs(one) - abs(other)
            estimate = Estimate(r, signed=True)
            p = two_sided_p(williams_t(abs(one), abs(other), between, n), n - 3)
        else:
            r = partial_correlation(x, y, others)
            if math.isnan(r):
                return Found(verdict=NOT_RUN, n=n)
            degrees = n - 2 - len(others)
            p = two_sided_p(r * math.sqrt(degrees / max(1e-12, 1 - r * r)), degrees)
            half = 1.959964 / math.sqrt(degrees - 1)
            z = math.atanh(max(-0.999999, min(0.999999, r)))
            estimate = Estimate(r, math.tanh(z - half), math.tanh(z + half), signed=True)
        verdict = REPRODUCED if r > 0 else OPPOSITE
        return Found(verdict=verdict, ours=estimate, n=n, p=p, detectable=partial(self._detectable, n))

    def _detectable(self, n: int, tests: int) -> float | None:
        """The smallest correlation that would be seen among so many tests, by Fisher's z."""
        if self.stronger_than is not None:
            return None
        level = NormalDist().inv_cdf(1 - SIGNIFICANCE / tests / 2) + NormalDist().inv_cdf(POWER)
        return math.tanh(level / math.sqrt(n - 3 - len(self.given)))
