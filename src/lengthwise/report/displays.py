"""How the rows of each task are shown, from the table of measurements. Imports no torch."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from lengthwise.measure.display import Display
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.results import Row

TRAINING = Display(title="Training", question="What did training do?", answer="training_answer")

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
    return {kind.task: kind.display for kind in kinds if kind.task} | {"training": TRAINING}


def display_of(task: str) -> Display:
    """The display of a task; a task of an evaluation or a study is shown under its own name."""
    if task in displays():
        return displays()[task]
    return Display(
        title=task.replace("_", " ").capitalize(),
        metrics=_SCORES,
        better={"loss": "lower", "gold_loss": "lower", "jeffreys": "lower", "benefit": "higher"},
        figures=("lengthwise.report.heatmaps:score_by_depth",),
        answer="scores_answer",
    )


def named_function(name: str, home: str) -> Callable[..., Any]:
    """The function that a `Display` names, `home` being the module of names without one."""
    module, _, function = name.rpartition(":")
    return getattr(importlib.import_module(module or home), function)


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows by task and metric in the order of the displays, then as they came."""
    order = list(displays())
    places = {
        task: (
            order.index(task) if task in order else len(order),
            {metric: index for index, metric in enumerate(display_of(task).metrics)},
        )
        for task in {row.task for row in rows}
    }
    return sorted(
        rows,
        key=lambda row: (places[row.task][0], places[row.task][1].get(row.metric, len(places[row.task][1]))),
    )
