"""How the rows of each task are shown, from the table of measurements. Imports no torch."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lengthwise.measure.measurement import Display
from lengthwise.measure.table import MEASUREMENTS
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
