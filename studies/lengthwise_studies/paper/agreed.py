"""Verdicts over several tables: a setting that was trained twice is pooled, and one number has one verdict.

Tables share settings. What one of them trained again is averaged with the first training, seed by seed, before it is
judged. What several of them judge has the largest of their p values, each corrected over its own table.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lengthwise.results import Results, Row
from lengthwise_studies.arms import arm_after
from lengthwise_studies.claims import Claim, Judged, decide, judge
from lengthwise_studies.paired_claims import Measured, Paired
from lengthwise_studies.paper.paper_table import PaperTable
from lengthwise_studies.paper.sizes import STEPS, Size


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """A table with one run of it; without results it was not run."""

    table: PaperTable
    variant: str = ""
    results: Results | None = None

    @property
    def size(self) -> Size:
        """Of the run, or the table's own."""
        return self.table.sizes["default"] if self.results is None else Size.of(self.results.config["size"])

    def judged(self, results: Results | None) -> list[Judged]:
        """The verdicts on what is claimed, from the run's rows or those that take their place."""
        if results is None:
            return judge(self.table.claims, Measured(rows=[]), self.size)
        return self.table.judged(results)


def judge_runs(runs: Sequence[TableRun]) -> list[list[Judged]]:
    """The verdicts of each run."""
    judged = [run.judged(results) for run, results in zip(runs, pooled(runs), strict=True)]
    same: dict[Hashable, list[Judged]] = {}
    for run, several in zip(runs, judged, strict=True):
        for one in several:
            same.setdefault(number_of(run, one.claim), []).append(one)
    return [
        [_agreed(one, same[number_of(run, one.claim)]) for one in several]
        for run, several in zip(runs, judged, strict=True)
    ]


def number_of(run: TableRun, claim: Claim[Paired]) -> Hashable:
    """What tells the number of a claim, and what is said of it, from all others."""
    test, trained = claim.test, run.table.trainings(run.size)
    both = tuple(trained.get(arm, arm) for arm in (test.arm, test.against))
    steps = None if test.steps == STEPS else test.steps
    return both, test.quantity, steps, test.direction, test.margin, run.variant


def _agreed(one: Judged, several: Sequence[Judged]) -> Judged:
    def largest(values: list[float | None]) -> float | None:
        return max((value for value in values if value is not None), default=None)

    return decide(
        one.claim,
        one.found,
        p=largest([each.p for each in several]),
        p_size=None if one.p_size is None else largest([each.p_size for each in several]),
        detectable=largest([each.detectable for each in several]),
    )


def pooled(runs: Sequence[TableRun]) -> list[Results | None]:
    """The results of each run, with the mean over all trainings of a setting in each difference."""
    found: dict[Hashable, set[tuple[float | None, float | None]]] = {}
    for run in runs:
        for key, row in _differences(run):
            found.setdefault(key, set()).add((row.value, row.stderr))

    def mean(key: Hashable, row: Row) -> Row:
        several = [(value, error) for value, error in found[key] if value is not None and error is not None]
        if len(several) < 2:
            return row
        values, errors = zip(*several, strict=True)
        return replace(row, value=fmean(values), stderr=fmean(errors), ci_low=None, ci_high=None)

    results: list[Results | None] = []
    for run in runs:
        if run.results is not None:
            means = {id(row): mean(key, row) for key, row in _differences(run)}
            rows = [means.get(id(row), row) for row in run.results.rows]
            results.append(replace(run.results, rows=rows))
        else:
            results.append(None)
    return results


def _differences(run: TableRun) -> Iterator[tuple[Hashable, Row]]:
    """The differences of a run, each with what decides it."""
    if run.results is None:
        return
    size, trained = run.size, run.table.trainings(run.size)
    after = {arm: (key, 0) for arm, key in trained.items()}
    after |= {arm_after(arm, mark): (key, mark) for arm, key in trained.items() for mark in size.marks}
    for row in run.results.rows:
        if row.arm in after and row.reference in after:
            yield (after[row.arm], after[row.reference], row.seed, row.place), row
