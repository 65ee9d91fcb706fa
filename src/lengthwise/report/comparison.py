"""Compared runs as a table: both numbers, their paired difference, and whether it is more than noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lengthwise.measure.student import SIGNIFICANCE
from lengthwise.report.numbers import Estimate
from lengthwise.report.summary import in_order, row_estimate
from lengthwise.report.tables import Cell, Table
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.measure.correlation import Coefficient, Correlation


def comparison_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each paired difference among `rows`, with the plain numbers it is made of."""
    plain = {(row.model, *_place(row)): row for row in rows if row.reference is None}
    differences = in_order([row for row in rows if row.reference is not None])
    several = len({row.task for row in differences}) > 1
    lengths = any(row.length is not None for row in differences)
    distances = any(row.distance is not None for row in differences)
    columns = [
        *["task"] * several,
        "metric",
        *["length"] * lengths,
        *["distance"] * distances,
        "run",
        "value",
        "reference's",
        "difference [95 % interval]",
        "p (Holm)",
        "more than noise",
    ]
    cells: list[list[Cell]] = []
    for row in differences:
        values = (plain.get((name or "", *_place(row))) for name in (row.model, row.reference))
        value, its_value = (None if found is None else _short(found) for found in values)
        cells.append(
            [
                *[row.task] * several,
                row.metric,
                *[row.length] * lengths,
                *[row.distance] * distances,
                row.model,
                value,
                its_value,
                row_estimate(row),
                _p_text(row.p_holm),
                "" if row.p_holm is None else "yes" if row.p_holm < SIGNIFICANCE else "no",
            ]
        )
    return Table(columns=columns, rows=cells, caption=caption)


def correlation_tables(
    pairs: Sequence[tuple[str, float, float]], found: Correlation, *, names: tuple[str, str]
) -> list[Table]:
    """The pairs that were correlated, and the two coefficients."""
    return [
        Table(columns=("model", *names), rows=[list(pair) for pair in pairs]),
        Table(
            columns=("correlation", "value [95 % interval]", "models"),
            rows=[
                ["Pearson", _estimate(found.pearson), found.n],
                ["Spearman (ranks)", _estimate(found.spearman), found.n],
            ],
        ),
    ]


def _short(row: Row) -> Estimate:
    """The value alone: its own interval says nothing about the difference."""
    return Estimate(row.value, at_least=bool(row.at_least))


def _estimate(coefficient: Coefficient) -> Estimate:
    return Estimate(coefficient.value, coefficient.low, coefficient.high, signed=True)


def _p_text(p: float | None) -> str:
    if p is None:
        return ""
    return "< 0.0001" if p < 1e-4 else f"{p:.4f}"


def _place(row: Row) -> tuple[str, str, int | None, int | None]:
    return row.task, row.metric, row.length, row.distance
