"""Which of several numbers goes with a score over models: correlations, partial ones, and which of two is greater."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from lengthwise.measure.comparison import holm_corrected
from lengthwise.measure.statistics import two_sided_p
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import SIGNIFICANCE
from lengthwise_studies.verdicts import POWER, Verdict

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
class Relation:
    """A statement on numbers of models: `of` correlates positively with `score`.

    Args:
        says: the statement, in short.
        of: the predictor.
        score: what it is to go with.
        given: predictors whose part is taken out.
        stronger_than: instead, another predictor whose correlation is to be smaller in size.
        claimed: by the paper; False for a control of ours.
        paper: the paper's coefficient.
    """

    says: str
    of: str
    score: str
    given: tuple[str, ...] = ()
    stronger_than: str | None = None
    claimed: bool = False
    paper: float | None = None


@dataclass(frozen=True, kw_only=True)
class Related:
    """A relation with its verdict.

    Args:
        relation: what was judged.
        n: models.
        estimate: the correlation with its 95 % interval by Fisher's z, or the difference of two in size.
        p: corrected by Holm over all relations of a call.
        detectable: the smallest correlation that would have been seen with probability `POWER`.
        verdict: by the rule; "reproduced" means: as the statement says.
    """

    relation: Relation
    n: int
    estimate: Estimate | None = None
    p: float | None = None
    detectable: float | None = None
    verdict: Verdict = "not run"


def relate(relations: Sequence[Relation], numbers: dict[str, dict[str, float]]) -> list[Related]:
    """A verdict on every relation.

    Args:
        relations: of one table; Holm's correction is over those that can be tested.
        numbers: model -> number -> value. Models without one of a relation's numbers are left out of it.
    """
    found = [_test(relation, numbers) for relation in relations]
    corrected = holm_corrected([one.p for one in found])
    tests = sum(p is not None for p in corrected)
    return [_judged(replace(one, p=p), tests) for one, p in zip(found, corrected, strict=True)]


def relations_table(related: Sequence[Related], *, caption: str) -> Table:
    """One line for each relation."""
    return Table(
        columns=["statement", "by", "paper", "ours", "n", "p (Holm)", "verdict", "could be seen"],
        rows=[
            [
                one.relation.says,
                "the paper" if one.relation.claimed else "control",
                one.relation.paper,
                one.estimate,
                one.n,
                "" if one.p is None else f"{one.p:.2g}",
                one.verdict,
                "" if one.detectable is None else f"{one.detectable:.2f}",
            ]
            for one in related
        ],
        caption=caption,
        notes=[
            "Models share text, and some share weights, so they are less independent than the intervals and p-values "
            "assume."
        ],
    )


def _test(relation: Relation, numbers: dict[str, dict[str, float]]) -> Related:
    """The estimate and its p before Holm's correction."""
    names = [relation.of, relation.score, *relation.given, *filter(None, [relation.stronger_than])]
    there = [own for own in numbers.values() if all(name in own for name in names)]
    n = len(there)
    if n < FEWEST:
        return Related(relation=relation, n=n)
    x, y, *others = ([own[name] for own in there] for name in names)
    if relation.stronger_than is not None:
        [z] = others
        one, other = partial_correlation(x, y), partial_correlation(z, y)
        # Signs are turned so that both correlations are positive.
        between = partial_correlation(x, z) * math.copysign(1, one) * math.copysign(1, other)
        p = two_sided_p(williams_t(abs(one), abs(other), between, n), n - 3)
        return Related(relation=relation, n=n, estimate=Estimate(abs(one) - abs(other), signed=True), p=p)
    r = partial_correlation(x, y, others)
    if math.isnan(r):
        return Related(relation=relation, n=n)
    degrees = n - 2 - len(others)
    p = two_sided_p(r * math.sqrt(degrees / max(1e-12, 1 - r * r)), degrees)
    half = 1.959964 / math.sqrt(degrees - 1)
    z = math.atanh(max(-0.999999, min(0.999999, r)))
    estimate = Estimate(r, math.tanh(z - half), math.tanh(z + half), signed=True)
    return Related(relation=relation, n=n, estimate=estimate, p=p)


def _judged(one: Related, tests: int) -> Related:
    if one.p is None or one.estimate is None or one.estimate.value is None:
        return one
    seen = None
    if one.relation.stronger_than is None:
        level = NormalDist().inv_cdf(1 - SIGNIFICANCE / tests / 2) + NormalDist().inv_cdf(POWER)
        seen = math.tanh(level / math.sqrt(one.n - 3 - len(one.relation.given)))
    verdict: Verdict = "reproduced" if one.estimate.value > 0 else "opposite"
    noise = one.p >= SIGNIFICANCE
    return replace(one, detectable=seen, verdict="not distinguishable from noise" if noise else verdict)
