"""A paired difference over training seeds and documents: its interval, its p value, and what could have been seen.

Of S seeds, seed s gives a paired difference d_s with a bootstrap standard error e_s over D documents. The documents
are the same for all seeds, so their errors do not average out. The standard error of the mean difference m is

    se^2 = a + b,    a = var(d) / S,    b = (mean e_s)^2

and m / se is compared with (a t_{S-1} + b t_{D-1}) / (a + b), Cochran's average of both quantiles of Student's t.
Among true nulls it calls at most 5 % more than noise, whatever a / b is; Satterthwaite's degrees of freedom reach
6.6 % with three seeds (simulated). The part of the documents' noise that differs between seeds counts in both terms,
so the interval is rather too wide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from lengthwise.errors import UsageError
from lengthwise.measure.statistics import students_t
from lengthwise.report.tables import Estimate
from lengthwise.results import SIGNIFICANCE, Row

FEWEST_SEEDS = 3
POWER = 0.8
"""The chance with which the smallest difference that could have been seen would have been seen."""


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """The mean of a paired difference over seeds.

    Args:
        mean: over seeds.
        of_seeds: a, the variance of the mean over seeds.
        of_documents: b, the variance that the documents add.
        seeds: S.
        documents: D.
    """

    mean: float
    of_seeds: float
    of_documents: float
    seeds: int
    documents: int

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return math.sqrt(self.of_seeds + self.of_documents)

    @property
    def interval(self) -> tuple[float, float]:
        """At 95 %, over seeds and documents."""
        half = self._quantile(0.975) * self.error if self.error else 0.0
        return self.mean - half, self.mean + half

    @property
    def estimate(self) -> Estimate:
        """The mean with its interval, for a cell."""
        return Estimate(self.mean, *self.interval, signed=True)

    def p_value(self, truth: float = 0.0) -> float:
        """Two-sided p of a true difference `truth`, to 12 digits behind the point."""
        distance = abs(self.mean - truth)
        if self.error == 0:
            # All seeds and documents alike: as far as the seeds' signs can tell.
            return 1.0 if distance == 0 else 2.0 ** (1 - self.seeds)
        low, high = math.log(1e-12), math.log(0.5)
        for _ in range(60):
            middle = (low + high) / 2
            reached = -self._quantile(math.exp(middle)) < distance / self.error
            low, high = (low, middle) if reached else (middle, high)
        return 2 * math.exp(high)

    def detectable(self, tests: int = 1, *, both_ends: bool = False) -> float | None:
        """The smallest true difference that is more than noise with probability `POWER`; None without noise.

        Args:
            tests: of one table: the level is the strictest of Holm's correction over so many.
            both_ends: for a test of sameness, which needs two one-sided tests: the smallest margin that both ends
                of the noise stay within.
        """
        if self.error == 0:
            return None
        power = (1 + POWER) / 2 if both_ends else POWER
        return (self._quantile(1 - SIGNIFICANCE / tests / 2) + self._quantile(power)) * self.error

    def _quantile(self, probability: float) -> float:
        """Of (m - truth) / error: the average of the quantiles of Student's t for seeds and for documents."""
        both = ((self.of_seeds, self.seeds), (self.of_documents, self.documents))
        return sum(part * students_t(probability, count - 1) for part, count in both) / self.error**2


def over_seeds(rows: Sequence[Row]) -> OverSeeds:
    """The mean of one number, a row with a paired difference for each seed.

    Raises:
        UsageError: fewer than `FEWEST_SEEDS`; a row without a value or an interval over documents.
    """
    if (seeds := len(rows)) < FEWEST_SEEDS:
        raise UsageError(f"{seeds} seed{'s' if seeds > 1 else ''} of the {FEWEST_SEEDS} that a verdict needs")
    found = [
        (row.value, row.stderr, row.documents)
        for row in rows
        if row.value is not None and row.stderr is not None and (row.documents or 0) > 1
    ]
    if len(found) < seeds:
        raise UsageError("a number has no interval over documents")
    values, errors, documents = zip(*found, strict=True)
    return OverSeeds(
        mean=fmean(values),
        of_seeds=variance(values) / seeds,
        of_documents=fmean(errors) ** 2,
        seeds=seeds,
        documents=min(documents),
    )
