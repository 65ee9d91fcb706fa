"""Verdicts on claims, from paired differences over seeds and documents, by one rule.

Of S seeds, seed s gives a paired difference d_s with a bootstrap standard error e_s over D documents. The documents
are the same for all seeds, so their errors do not average out. The standard error of the mean difference m is

    se^2 = a + b,    a = var(d) / S,    b = (mean e_s)^2

and m / se is compared with (a t_{S-1} + b t_{D-1}) / (a + b), Cochran's average of both quantiles of Student's t.
Among true nulls it calls at most 5 % more than noise, whatever a / b is; Satterthwaite's degrees of freedom reach
6.6 % with three seeds (simulated). The part of the documents' noise that differs between seeds counts in both terms,
so the interval is rather too wide. Holm corrects over all claims of a table; with p < 0.05 a difference is more than
noise.

A claim that two arms do the same has a margin. It is confirmed where the difference lies within it (two one-sided
tests), and contradicted where it lies outside. A claim that one arm is not higher (or lower) than the other by more
than a margin is tested against that margin alone.

Fewer than three seeds decide nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Literal

from lengthwise.measure.comparison import holm_corrected
from lengthwise.measure.statistics import students_t
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import SIGNIFICANCE, Row
from lengthwise_studies.paired_claims import PairedClaim

Verdict = Literal["reproduced", "opposite", "not distinguishable from noise", "not run"]
FEWEST_SEEDS = 3
POWER = 0.8
"""The chance with which the smallest effect that could have been seen would have been seen."""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with its verdict.

    Args:
        claim: what was judged.
        verdict: by the rule of this module.
        difference: the mean paired difference over seeds, in the quantity's unit.
        low, high: its 95 % interval over seeds and documents, without Holm's correction.
        p_holm: after Holm's correction over the table.
        detectable: the smallest true difference that this many seeds and documents would show with probability
            `POWER` in this table; of a claim with a margin, the smallest margin if there is no true difference.
        seeds: fine-tuning seeds.
        documents: held-out documents, or questions.
        why: for "not run": what is missing.
    """

    claim: PairedClaim
    verdict: Verdict
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p_holm: float | None = None
    detectable: float | None = None
    seeds: int = 0
    documents: int = 0
    why: str = ""

    @property
    def sentence(self) -> str:
        """The verdict in words, made from the numbers."""
        claim = f"{self.claim.place}: {self.claim.says}"
        if self.verdict == "not run":
            return f"{claim}: not run ({self.why})."
        unit = self.claim.quantity.unit
        ours = Estimate(self.difference, self.low, self.high, signed=True).text
        sentence = (
            f"{claim}: {self.verdict}. {self.claim.difference}: {ours} {unit} (p {_p_text(self.p_holm)} after Holm, "
            f"{self.seeds} seeds, {self.documents} documents)."
        )
        if self.verdict == "not distinguishable from noise":
            what = "difference" if self.claim.margin is None else "margin"
            if self.detectable is not None:
                sentence += (
                    f" A {what} of {self.detectable:.2g} {unit} would have been seen in {POWER:.0%} of cases."
                )
        return sentence


@dataclass(frozen=True)
class _Test:
    mean: float
    of_seeds: float
    """The variance of the mean over seeds."""
    of_documents: float
    """The variance that the documents add."""
    seeds: int
    documents: int

    @property
    def error(self) -> float:
        return math.sqrt(self.of_seeds + self.of_documents)

    def quantile(self, probability: float) -> float:
        """Of (m - truth) / error: the average of the quantiles of Student's t for seeds and for documents."""
        both = ((self.of_seeds, self.seeds), (self.of_documents, self.documents))
        return sum(part * students_t(probability, count - 1) for part, count in both) / self.error**2

    @property
    def estimate(self) -> Estimate:
        half = self.quantile(0.975) * self.error if self.error else 0.0
        return Estimate(self.mean, self.mean - half, self.mean + half, signed=True)

    def p_value(self, claim: PairedClaim) -> float:
        """Two-sided p of a truth at the claim's bound; for "same", at the nearer end of its margin."""
        same = claim.direction == "same"
        distance = abs((claim.margin or 0) - abs(self.mean)) if same else abs(self.mean - claim.bound)
        if self.error == 0:
            # All seeds and documents alike: as far as the seeds' signs can tell.
            return 1.0 if distance == 0 else 2.0 ** (1 - self.seeds)
        return 2 * self._beyond(distance / self.error)

    def _beyond(self, t: float) -> float:
        """The one-sided p of t >= 0, to 12 digits behind the point."""
        low, high = math.log(1e-12), math.log(0.5)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if -self.quantile(math.exp(middle)) < t else (middle, high)
        return math.exp(high)

    def detectable(self, tests: int, *, same: bool) -> float | None:
        """What would be beyond noise with probability `POWER` at Holm's strictest level; None without noise.

        Sameness needs both of its one-sided tests, so both ends of the noise have to stay within the margin.
        """
        if self.error == 0:
            return None
        power = (1 + POWER) / 2 if same else POWER
        return (self.quantile(1 - SIGNIFICANCE / tests / 2) + self.quantile(power)) * self.error


def judge(
    claims: Sequence[PairedClaim], rows: Sequence[Row], *, length: int, at: dict[int, str] | None = None
) -> list[Judged]:
    """A verdict on every claim of a table.

    Args:
        claims: of one table; Holm's correction is over those that can be tested.
        rows: with the paired differences of each seed (`arm`, `reference`, `seed`).
        length: L in tokens, at this scale.
        at: what arms are called after the paper's steps, as a suffix of their names; without it claims with `steps`
            are not run.
    """
    tests = [_test(claim, rows, length, at or {}) for claim in claims]
    values = [
        None if isinstance(test, str) else test.p_value(claim)
        for claim, test in zip(claims, tests, strict=True)
    ]
    many = sum(value is not None for value in values)
    return [
        Judged(claim=claim, verdict="not run", why=test)
        if isinstance(test, str)
        else _judged(claim, test, p, many)
        for claim, test, p in zip(claims, tests, holm_corrected(values), strict=True)
    ]


def over_seeds(rows: Sequence[Row]) -> Estimate | None:
    """The mean paired difference over seeds, with its 95 % interval over seeds and documents.

    Args:
        rows: one number of one arm, a row for each seed. Fewer than `FEWEST_SEEDS`, or a row without an interval over
            documents, give None.
    """
    test = _of_seeds(rows)
    return None if isinstance(test, str) else test.estimate


def values_over_seeds(values: Sequence[float]) -> Estimate | None:
    """The mean of one value a seed, with Student's 95 % interval; None with fewer than `FEWEST_SEEDS`."""
    test = _of_values(values)
    return None if isinstance(test, str) else replace(test.estimate, signed=False)


def range_over_seeds(rows: Sequence[Row], *, signed: bool = False) -> Estimate | None:
    """The mean over seeds with the lowest and the highest; the 95 % interval of one seed.

    None where a seed has no value: a mean over the others would be of other models.
    """
    values = [row.value for row in rows if row.value is not None]
    if not values or len(values) < len(rows):
        return None
    at_least = any(row.at_least for row in rows)
    low, high = (rows[0].ci_low, rows[0].ci_high) if len(values) == 1 else (min(values), max(values))
    return Estimate(fmean(values), low, high, signed=signed, at_least=at_least)


def _test(claim: PairedClaim, rows: Sequence[Row], length: int, at: dict[int, str]) -> _Test | str:
    """The test of a claim, or what it lacks."""
    if claim.steps is not None and claim.steps not in at:
        return "this scale keeps no such checkpoint"
    after = "" if claim.steps is None else at[claim.steps]
    arm, against = claim.arm + after, claim.against + after
    found = [
        row
        for row in rows
        if (row.arm, row.reference) == (arm, against) and claim.quantity.is_in(row, length)
    ]
    if not found:
        return "not measured at this scale"
    if len({row.seed for row in found}) != len(found):
        raise AssertionError(f"{claim.quantity.heading} of {arm} names several numbers of one seed")
    return _of_seeds(found)


def _of_seeds(found: Sequence[Row]) -> _Test | str:
    """The test of one number of one arm, or what it lacks."""
    values = [row.value for row in found if row.value is not None]
    errors = [row.stderr for row in found if row.stderr is not None]
    documents = min((row.documents or 0 for row in found), default=0)
    test = _of_values([row.value or 0.0 for row in found])
    if isinstance(test, str):
        return test
    if len(values) < len(found) or len(errors) < len(found) or documents < 2:
        return "a number has no interval over documents"
    return replace(test, of_documents=fmean(errors) ** 2, documents=documents)


def _of_values(values: Sequence[float]) -> _Test | str:
    """The test of values of seeds alone, or what it lacks."""
    if len(values) < FEWEST_SEEDS:
        return (
            f"{len(values)} seed{'s' if len(values) > 1 else ''} of the {FEWEST_SEEDS} that a verdict needs"
        )
    return _Test(fmean(values), variance(values) / len(values), 0.0, len(values), documents=len(values))


def _judged(claim: PairedClaim, test: _Test, p_holm: float | None, tests: int) -> Judged:
    estimate = test.estimate
    found = Judged(
        claim=claim,
        verdict="not distinguishable from noise",
        difference=estimate.value,
        low=estimate.low,
        high=estimate.high,
        p_holm=p_holm,
        detectable=test.detectable(tests, same=claim.direction == "same"),
        seeds=test.seeds,
        documents=test.documents,
    )
    if p_holm is None or p_holm >= SIGNIFICANCE:
        return found
    if claim.direction == "same":
        as_claimed = abs(test.mean) < (claim.margin or 0)
    else:
        as_claimed = (test.mean < claim.bound) == claim.below
    return replace(found, verdict="reproduced" if as_claimed else "opposite")


def verdict_table(judged: Sequence[Judged], *, caption: str = "The paper's claims") -> Table:
    """One line for each claim: ours, the verdict, what could be seen; the paper's values if a claim is a paper's."""
    papers = any(one.claim.source is not None for one in judged)
    rows: list[list[Cell]] = [
        [
            one.claim.place,
            one.claim.says,
            *([one.claim.paper_text] if papers else []),
            one.claim.difference,
            None if one.difference is None else Estimate(one.difference, one.low, one.high, signed=True),
            one.claim.quantity.unit,
            _p_text(one.p_holm),
            one.verdict if one.verdict != "not run" else f"not run: {one.why}",
            f"{one.detectable:.2g}" if one.detectable is not None else "",
        ]
        for one in judged
    ]
    columns = ["place", "claim", "paper", "what", "ours", "unit", "p (Holm)", "verdict", "could be seen"]
    return Table(
        columns=[column for column in columns if papers or column != "paper"],
        rows=rows,
        caption=caption,
        notes=[
            "Intervals at 95 % over seeds and documents. p is corrected over the table (Holm). The last column is "
            f"the smallest difference (of a claim with a margin: margin) that would have been more than noise in "
            f"{POWER:.0%} of cases. Fewer than {FEWEST_SEEDS} seeds give no verdict."
        ],
    )


def _p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.2g}"
