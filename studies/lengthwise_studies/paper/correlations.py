"""Tests of statements on many models: how their numbers go together, and what an extension does to them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from lengthwise.measure.statistics import students_t, two_sided_p
from lengthwise.report.tables import Estimate
from lengthwise.results import SIGNIFICANCE
from lengthwise_studies.claims import NOT_RUN, OPPOSITE, REPRODUCED, Found
from lengthwise_studies.over_seeds import POWER

FEWEST = 8
"""Models that a verdict needs, without those that are extensions of another."""
Values = Sequence[float]


class Key(NamedTuple):
    """A model, as it is (`method` is "") or extended; extensions of one model share its weights."""

    model: str
    method: str = ""
    times: int = 1

    @property
    def name(self) -> str:
        """What it is called in tables."""
        return f"{self.model}, {self.method} x{self.times}" if self.method else self.model


Numbers = Mapping[Key, Mapping[str, float]]
"""The values of each model by their names."""


def partial_correlation(x: Values, y: Values, given: Sequence[Values] = ()) -> float:
    """Pearson's correlation of what the straight line in `given` leaves of x and of y; NaN where nothing varies."""
    both = np.column_stack([x, y])
    line = np.column_stack([np.ones(len(x)), *given])
    left = both - line @ np.linalg.lstsq(line, both, rcond=None)[0]
    products = left.T @ left
    spread = math.sqrt(products[0, 0] * products[1, 1])
    scale = math.sqrt(both.var(axis=0).prod()) * len(x)
    return float(products[0, 1]) / spread if spread > 1e-12 * max(scale, 1e-300) else math.nan


def over_models(
    statistic: Callable[[list[Values]], float], rows: Mapping[Key, Values]
) -> tuple[float, float, int]:
    """A statistic of the columns of all rows, its standard error, and its degrees of freedom.

        s^2 = (G - 1) / G * sum over g of (S without model g - their mean)^2,    G - 2 degrees of freedom

    One model after the other is left out, with everything that it was extended to. If five twins counted as five
    models, a third of true nulls would be called more than noise.
    """
    models = dict.fromkeys(key.model for key in rows)
    kept = [[own for key, own in rows.items() if key.model != left] for left in models]
    without = np.array([statistic([*zip(*own, strict=True)]) for own in kept])
    error = math.sqrt((len(without) - 1) / len(without) * float(((without - without.mean()) ** 2).sum()))
    return statistic([*zip(*rows.values(), strict=True)]), error, len(without) - 2


def found_by_t(
    value: float,
    error: float,
    degrees: int,
    *,
    above: bool,
    n: int,
    size: float | None = None,
    back: Callable[[float], float] = float,
) -> Found:
    """What Student's t finds of a number that is claimed to be above 0, or below it; `back` is to the scale shown."""
    half, error = students_t(0.975, degrees) * error, max(error, 1e-12)
    return Found(
        verdict=REPRODUCED if (value > 0) == above else OPPOSITE,
        ours=Estimate(back(value), back(value - half), back(value + half), signed=True),
        n=n,
        p=two_sided_p(value / error, degrees),
        p_size=None if size is None else two_sided_p((value - size) / error, degrees),
        detectable=lambda tests: back(
            (students_t(1 - SIGNIFICANCE / tests / 2, degrees) + NormalDist().inv_cdf(POWER)) * error
        ),
    )


@dataclass(frozen=True)
class Correlation:
    """The test of a statement on models: the predictor `of` correlates positively with `score`.

    The part of the predictors in `given` is taken out. Or: it correlates more, in size, than another predictor does.
    `ranked`: of ranks (Spearman's). `size`: what the paper's own models have.
    """

    of: str
    score: str
    given: tuple[str, ...] = ()
    stronger_than: str | None = None
    ranked: bool = False
    size: float | None = None

    @property
    def rule(self) -> str:
        """When the claim holds, in words."""
        ranks = " of ranks" if self.ranked else ""
        given = f", given {' and '.join(self.given)}" if self.given else ""
        least = f"in size that of {self.stronger_than}" if self.stronger_than else "0"
        return f"the correlation{ranks} of {self.of} with {self.score}{given} is above {least}"

    def __call__(self, numbers: Numbers) -> Found:
        """The correlation, or the difference of two in size, with its 95 % interval.

        Intervals are made on the scale of Fisher's z = atanh(r), those of differences on that of r. Models without
        one of the numbers are left out.
        """
        names = [self.of, self.score, *self.given, *filter(None, [self.stronger_than])]
        rows = {
            key: [own[each] for each in names]
            for key, own in numbers.items()
            if all(each in own for each in names)
        }
        if len({key.model for key in rows}) < FEWEST:
            return Found(verdict=NOT_RUN, n=len(rows))
        value, error, degrees = over_models(self._statistic, rows)
        if math.isnan(value) or math.isnan(error):
            return Found(verdict=NOT_RUN, n=len(rows))
        back, forth = (float, float) if self.stronger_than else (math.tanh, math.atanh)
        size = None if self.size is None else forth(self.size)
        return found_by_t(value, error, degrees, above=True, n=len(rows), size=size, back=back)

    def _statistic(self, columns: list[Values]) -> float:
        if self.ranked:
            columns = [list(rankdata(column)) for column in columns]
        x, y, *others = columns
        if self.stronger_than is not None:
            return abs(partial_correlation(x, y)) - abs(partial_correlation(others[0], y))
        return math.atanh(max(-0.999999, min(0.999999, partial_correlation(x, y, others))))


@dataclass(frozen=True)
class Extended:
    """The test of a statement on extended models: a number is lower than that of the model as it is.

    Each model has the mean over its extensions.
    """

    of: str

    @property
    def rule(self) -> str:
        """When the claim holds, in words."""
        return f"{self.of} of extended models minus that of the model as it is, mean over models: below 0"

    def __call__(self, numbers: Numbers) -> Found:
        """The mean over models with its 95 % interval by Student's t."""
        rows: dict[Key, Values] = {}
        for key, own in numbers.items():
            of_it = [
                other[self.of] for one, other in numbers.items() if one.model == key.model and one.method
            ]
            if of_it and not key.method:
                rows[key] = [fmean(of_it) - own[self.of]]
        if len(rows) < FEWEST:
            return Found(verdict=NOT_RUN, n=len(rows))
        value, error, _ = over_models(lambda columns: float(np.mean(columns[0])), rows)
        return found_by_t(value, error, len(rows) - 1, above=False, n=len(rows))
