"""The tables of an experiment: one column for each arm, one line for each number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Results, Row


@dataclass(frozen=True)
class Line:
    """One number of every arm."""

    heading: str
    task: str
    metric: str
    decimals: int
    length: int | None = None
    distance: int | None = None

    def matches(self, row: Row) -> bool:
        """Whether `row` is this number of some arm (and not a bin of it)."""
        return (
            row.task == self.task
            and row.metric == self.metric
            and row.position is None
            and row.context_other is None
            and (self.length is None or row.length == self.length)
            and row.distance == self.distance
        )


def loss_lines(length: int) -> tuple[Line, ...]:
    """The loss at L, 2L and 4L."""
    return tuple(Line(f"loss at {n}L", "perplexity", "loss", 3, length=n * length) for n in (1, 2, 4))


def recall_lines(distances: Sequence[int]) -> tuple[Line, ...]:
    """The benefit of a repeated passage at each distance."""
    return tuple(Line(f"recall at {d}", "recall", "benefit", 4, distance=d) for d in distances)


def values_table(results: Results, arms: Sequence[str], lines: Sequence[Line], *, caption: str) -> Table:
    """Every number, averaged over seeds."""
    return Table(
        columns=["", *arms],
        rows=[[line.heading, *(_mean_cell(results, arm, line) for arm in arms)] for line in lines],
        caption=caption,
    )


def differences_table(
    results: Results, arms: Sequence[str], lines: Sequence[Line], *, reference: str
) -> Table:
    """Every number minus the reference's; an interval for one seed, mean and standard deviation for several."""
    seeds = len({row.seed for row in results.rows if row.reference is not None})
    spread = "mean and standard deviation over seeds" if seeds > 1 else "95 % interval over documents"
    return Table(
        columns=["", *arms],
        rows=[[line.heading, *(_difference_cell(results, arm, line) for arm in arms)] for line in lines],
        caption=f"Paired difference from {reference} ({seeds} seed{'s' if seeds > 1 else ''}; {spread})",
    )


def mean_of(results: Results, arm: str, line: Line, *, difference: bool = False) -> float:
    """One number of an arm (or its difference from the reference), averaged over seeds."""
    return fmean(row.value for row in _found(results, arm, line, difference) if row.value is not None)


def _found(results: Results, arm: str, line: Line, difference: bool) -> list[Row]:
    """One number of one arm, a row for each seed."""
    return [
        row
        for row in results.rows
        if row.arm == arm
        and line.matches(row)
        and (row.reference is not None) == difference
        and row.value is not None
    ]


def _mean_cell(results: Results, arm: str, line: Line) -> Cell:
    if not _found(results, arm, line, False):
        return None
    return f"{mean_of(results, arm, line):.{line.decimals}f}"


def _difference_cell(results: Results, arm: str, line: Line) -> Cell:
    found = _found(results, arm, line, True)
    if not found:
        return None
    if len(found) == 1:
        return Estimate(found[0].value, found[0].ci_low, found[0].ci_high, signed=True)
    values = [row.value for row in found if row.value is not None]
    return f"{fmean(values):+.{line.decimals}f} ± {stdev(values):.{line.decimals}f}"
