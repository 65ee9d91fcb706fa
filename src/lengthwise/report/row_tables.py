"""Rows of results: how the rows of each task are shown, and tables of them. Imports no torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lengthwise.measure.measurement import Display
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Row

_SCORES = {
    "accuracy": "share of questions with the right answer",
    "chance": "the accuracy of guessing among the ranked answers",
    "gold_probability": "the right answer's share of the likelihood of all ranked answers",
    "gold_loss": "-log gold_probability, nats an answer",
    "contained": "share of the right numbers that the reply contains",
    "average_rows": "mean over data sets of the mean of all their rows",
    "average_categories": "mean over categories of the mean of their data sets",
    "average_buckets": "mean over the buckets of length of the mean over data sets",
}


@functools.cache
def displays() -> dict[str, Display]:
    """Task -> what presents it, in the order of a page."""
    kinds = [entry.measurement for entry in MEASUREMENTS.values()]
    found = {
        kind.task: replace(kind.display, question=kind.__doc__.splitlines()[0]) for kind in kinds if kind.task
    }
    return found | {"training": Display(title="Training", question="What did training do?")}


def display_of(task: str) -> Display:
    """The display of a task; a task of an evaluation is shown under its own name."""
    if task in displays():
        return displays()[task]
    return Display(
        title=task.replace("_", " ").capitalize(),
        metrics=_SCORES,
        better={"loss": "lower", "gold_loss": "lower", "jeffreys": "lower", "benefit": "higher"},
    )


def tasks_in_order(tasks: Iterable[str]) -> list[str]:
    """Tasks in the order of the displays, others as they came."""
    order = list(displays())
    return sorted(dict.fromkeys(tasks), key=lambda task: order.index(task) if task in order else len(order))


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows by task and metric in the order of the displays, then as they came."""
    tasks = tasks_in_order(row.task for row in rows)
    metrics = {task: list(display_of(task).metrics) for task in tasks}

    def place(row: Row) -> tuple[int, int]:
        known = metrics[row.task]
        return tasks.index(row.task), known.index(row.metric) if row.metric in known else len(known)

    return sorted(rows, key=place)


# Columns that are shown where any row has a value, by name in the table.
_BEFORE_VALUE = {
    "arm": "arm",
    "seed": "seed",
    "length": "length",
    "context": "context",
    "other context": "context_other",
    "from position": "position",
    "to position": "position_end",
    "distance": "distance",
    "kept": "kept",
    "depth %": "depth",
    "bucket": "bucket",
    "reference": "reference",
}
# What tells rows of one metric apart in narrow tables.
_PLACES = {name: _BEFORE_VALUE[name] for name in ("length", "distance", "kept")}
_AFTER_VALUE = {"n": "n", "documents": "documents", "truncated": "truncated"}


def headline_rows(rows: Sequence[Row]) -> list[Row]:
    """The rows that a table shows first (`Row.is_headline`)."""
    return [row for row in rows if row.is_headline]


def difference_rows(rows: Sequence[Row]) -> list[Row]:
    """Paired differences of whole numbers."""
    return [row for row in rows if row.is_whole and row.reference is not None]


def series_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's curve or column: its arm, or its model, or both where both vary."""
    several_models = len({row.model for row in rows}) > 1
    return [f"{row.model}, {row.arm}" if row.arm and several_models else row.arm or row.model for row in rows]


def rows_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each row: model, metric, length, value with its 95 % interval, n, documents.

    Columns that are empty for all rows (no distance, no arm, ...) are left out.
    """
    shown: dict[str, Sequence[Cell]] = {"model": [row.model for row in rows]}
    if len({row.task for row in rows}) > 1:
        shown["task"] = [row.task for row in rows]
    shown["metric"] = [row.metric for row in rows]
    shown |= _filled(_BEFORE_VALUE, rows)
    shown["value [95 % interval]" if has_intervals(rows) else "value"] = [row_estimate(row) for row in rows]
    shown["unit"] = [row.unit for row in rows]
    shown |= _filled(_AFTER_VALUE, rows)
    return Table(columns=tuple(shown), rows=list(zip(*shown.values(), strict=True)), caption=caption)


def side_by_side(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each metric and length (or distance), one column for each model, arm and seed."""
    names = [
        name if row.seed is None else f"{name}, seed {row.seed}"
        for row, name in zip(rows, series_names(rows), strict=True)
    ]
    places = _filled(_PLACES, rows)
    lines: dict[tuple[Cell, ...], dict[str, Row]] = {}
    for index, (row, name) in enumerate(zip(rows, names, strict=True)):
        lines.setdefault((row.metric, *(column[index] for column in places.values())), {})[name] = row
    columns = list(dict.fromkeys(names))
    return Table(
        columns=("metric", *places, *columns),
        rows=[
            [*place, *(row_estimate(found[name]) if name in found else None for name in columns)]
            for place, found in lines.items()
        ],
        caption=caption,
    )


def comparison_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each paired difference among `rows`, with the two numbers that it is made of."""
    plain: dict[tuple[str | None, ...], Row] = {
        (row.model, *row.place): row for row in rows if row.reference is None
    }
    differences = in_order([row for row in rows if row.reference is not None])
    shown: dict[str, Sequence[Cell]] = {}
    if len({row.task for row in differences}) > 1:
        shown["task"] = [row.task for row in differences]
    shown["metric"] = [row.metric for row in differences]
    shown |= _filled(_PLACES, differences)
    shown["run"] = [row.model for row in differences]
    shown["value"] = [_value_alone(plain.get((row.model, *row.place))) for row in differences]
    shown["reference's"] = [_value_alone(plain.get((row.reference, *row.place))) for row in differences]
    shown["difference [95 % interval]"] = [row_estimate(row) for row in differences]
    shown["p (Holm)"] = [
        "" if row.p_holm is None else "< 0.0001" if row.p_holm < 1e-4 else f"{row.p_holm:.4f}"
        for row in differences
    ]
    shown["more than noise"] = [{None: "", True: "yes", False: "no"}[row.beyond_noise] for row in differences]
    return Table(columns=tuple(shown), rows=list(zip(*shown.values(), strict=True)), caption=caption)


def has_intervals(rows: Sequence[Row]) -> bool:
    """Whether any row has one."""
    return any(row.ci_low is not None for row in rows)


def row_estimate(row: Row) -> Estimate:
    """A row's value and interval as a cell."""
    signed = row.reference is not None
    return Estimate(row.value, row.ci_low, row.ci_high, signed=signed, at_least=bool(row.at_least))


def _filled(columns: dict[str, str], rows: Sequence[Row]) -> dict[str, list[Cell]]:
    """The columns that have a value in any row; a zero count of cut samples is none."""
    found = {
        name: [getattr(row, field) or None if field == "truncated" else getattr(row, field) for row in rows]
        for name, field in columns.items()
    }
    return {name: cells for name, cells in found.items() if any(cell is not None for cell in cells)}


def _value_alone(row: Row | None) -> Estimate | None:
    """The interval of one side says nothing about the difference."""
    return None if row is None else Estimate(row.value, at_least=bool(row.at_least))
