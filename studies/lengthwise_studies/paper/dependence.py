"""Which of several numbers goes with a score over models: correlations, partial ones, and which of two is greater."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
    columns = np.column_stack([np.ones(len(x)), *given])
    left = [
        values - columns @ np.linalg.lstsq(columns, values, rcond=None)[0] for values in map(_array, (x, y))
    ]
    spread = math.sqrt(float((left[0] @ left[0]) * (left[1] @ left[1])))
    scale = math.sqrt(float(np.var(x) * np.var(y))) * len(x)
    return float(left[0] @ left[1]) / spread if spread > 1e-12 * max(scale, 1e-300) else math.nan


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


@dataclass(frozen=True, kw_only=True)
class Relation:
    """One statement on numbers of models.

    Args:
        says: the statement, in short.
        of: the predictor.
        score: what it is to go with.
        given: predictors whose part is taken out.
        sign: of the correlation that is claimed.
        stronger_than: instead, another predictor whose correlation is to be smaller in size.
        claimed: by the paper; False for a control of ours.
        paper: the paper's coefficient.
    """

    says: str
    of: str
    score: str
    given: tuple[str, ...] = ()
    sign: Literal[1, -1] = 1
    stronger_than: str | None = None
    claimed: bool = True
    paper: float | None = None


@dataclass(frozen=True, kw_only=True)
class Related:
    """A relation with its verdict.

    Args:
        relation: what was judged.
        n: models.
        value: the correlation, or the difference of two in size.
        low, high: its 95 % interval by Fisher's z, for one correlation.
        p_holm: corrected over all relations of a call.
        detectable: the smallest correlation that would have been seen with probability `POWER`.
        verdict: by the rule; "reproduced" means: as the statement says.
    """

    relation: Relation
    n: int
    value: float | None
    low: float | None = None
    high: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    verdict: Verdict = "not run"

    @property
    def sentence(self) -> str:
        """The verdict in words, made from the numbers."""
        if self.verdict == "not run":
            return f"{self.relation.says}: not run ({self.n} models of the {FEWEST} that a verdict needs)."
        ours = Estimate(self.value, self.low, self.high, signed=True).text
        said = f"{self.relation.says}: {self.verdict}. {ours} over {self.n} models, p {self.p_holm:.2g} after Holm."
        if self.verdict == "not distinguishable from noise" and self.detectable is not None:
            said += f" A correlation of {self.detectable:.2f} would have been seen in {POWER:.0%} of cases."
        return said


def relate(relations: Sequence[Relation], numbers: dict[str, dict[str, float]]) -> list[Related]:
    """A verdict on every relation.

    Args:
        relations: of one table; Holm's correction is over those that can be tested.
        numbers: model -> number -> value. Models without one of a relation's numbers are left out of it.
    """
    found = [_test(relation, numbers) for relation in relations]
    corrected = holm_corrected([p for _, p in found])
    tests = sum(p is not None for _, p in found)
    return [_with_verdict(one, p, tests) for (one, _), p in zip(found, corrected, strict=True)]


def relations_table(related: Sequence[Related], *, caption: str) -> Table:
    """One line for each relation."""
    return Table(
        columns=["statement", "by", "paper", "ours", "n", "p (Holm)", "verdict", "could be seen"],
        rows=[
            [
                one.relation.says,
                "the paper" if one.relation.claimed else "control",
                one.relation.paper,
                None if one.value is None else Estimate(one.value, one.low, one.high, signed=True),
                one.n,
                "" if one.p_holm is None else f"{one.p_holm:.2g}",
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


def _test(relation: Relation, numbers: dict[str, dict[str, float]]) -> tuple[Related, float | None]:
    names = [relation.of, relation.score, *relation.given]
    names += [relation.stronger_than] if relation.stronger_than else []
    there = [own for own in numbers.values() if all(name in own for name in names)]
    n = len(there)
    if n < FEWEST:
        return Related(relation=relation, n=n, value=None), None
    column = {name: [own[name] for own in there] for name in names}
    if relation.stronger_than is not None:
        x, z, y = column[relation.of], column[relation.stronger_than], column[relation.score]
        one, other = partial_correlation(x, y), partial_correlation(z, y)
        # Signs are turned so that both correlations are positive.
        between = partial_correlation(x, z) * math.copysign(1, one) * math.copysign(1, other)
        p = two_sided_p(williams_t(abs(one), abs(other), between, n), n - 3)
        return Related(relation=relation, n=n, value=abs(one) - abs(other)), p
    r = partial_correlation(
        column[relation.of], column[relation.score], [column[name] for name in relation.given]
    )
    if math.isnan(r):
        return Related(relation=relation, n=n, value=None), None
    degrees = n - 2 - len(relation.given)
    p = two_sided_p(r * math.sqrt(degrees / max(1e-12, 1 - r * r)), degrees)
    half = 1.959964 / math.sqrt(degrees - 1)
    z = math.atanh(max(-0.999999, min(0.999999, r)))
    return Related(relation=relation, n=n, value=r, low=math.tanh(z - half), high=math.tanh(z + half)), p


def _with_verdict(one: Related, p: float | None, tests: int) -> Related:
    if p is None or one.value is None:
        return one
    degrees = one.n - 3 - len(one.relation.given)
    level = NormalDist().inv_cdf(1 - SIGNIFICANCE / tests / 2) + NormalDist().inv_cdf(POWER)
    wanted = 1 if one.relation.stronger_than else one.relation.sign
    verdict: Verdict = "not distinguishable from noise"
    if p < SIGNIFICANCE:
        verdict = "reproduced" if one.value * wanted > 0 else "opposite"
    seen = None if one.relation.stronger_than else math.tanh(level / math.sqrt(degrees))
    return replace(one, p_holm=p, detectable=seen, verdict=verdict)


def _array(values: Values) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
