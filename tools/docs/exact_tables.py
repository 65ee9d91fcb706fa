"""The four numbers of linear attention that theorem 2 is about, computed when the page is made."""

from __future__ import annotations

from lengthwise.report.tables import Table
from lengthwise_studies.theorem2_check import (
    LONGEST,
    ansatz,
    equal_queries_minimum,
    error,
    full_minimum,
    objective,
    rank_one_minimum,
)

_SHOWN = (20, 35, 50)
_KINDS = {
    "length, rank 1 = the paper's": ("length", rank_one_minimum),
    "length, free": ("length", full_minimum),
    "sum, the paper's": ("sum", ansatz),
    "sum, q' = q'' alone": ("sum", equal_queries_minimum),
    "sum, rank 1": ("sum", rank_one_minimum),
    "sum, free": ("sum", full_minimum),
    "mean, all": ("mean", full_minimum),
}


def exact_table() -> Table:
    """A line for each kind of table: its numbers, what it loses in training, and its errors beyond."""
    rows = []
    for name, (task, best) in _KINDS.items():
        table = best(task, LONGEST)
        errors = ", ".join(_shown(error(task, table, length).item(), 2) for length in _SHOWN)
        entries = ", ".join(_shown(entry, 5) for entry in table.flatten().tolist())
        rows.append([name, entries, _shown(objective(task, table, LONGEST).item(), 5), errors])
    return Table(
        columns=[
            f"L = {LONGEST}",
            "table (a00, a01, a10, a11)",
            "loss",
            f"error at {', '.join(map(str, _SHOWN))}",
        ],
        rows=rows,
    )


def _shown(value: float, decimals: int) -> str:
    """Without what rounding leaves of a 0, and without zeros at the end."""
    return f"{round(value, decimals) + 0.0:.{decimals}f}".rstrip("0").rstrip(".")
