"""What a report shows of a task: each measurement declares its `Display` in its own module. Imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lengthwise.results import Row


@dataclass(frozen=True, kw_only=True)
class Display:
    """How tables, pages and the terminal present the rows of one task.

    Figures and answer are named, not imported: `name` is a function of `lengthwise.report.figures` or
    `lengthwise.report.terminal`, `package.module:name` one of any module.
    """

    title: str
    question: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    """The metrics in the order to show them, each with what it is."""
    better: Mapping[str, str] = field(default_factory=dict)
    """The metrics whose paired differences are drawn, each with the better direction: lower or higher."""
    figures: Sequence[str] = ()
    """Functions that take rows and return a `Picture`, or None where there is nothing to draw."""
    answer: str = ""
    """The function that takes rows and settings and returns the lines of the answer in the terminal. Without one the
    terminal shows the table."""
    passages: str = ""
    """The function that takes the samples of a run and returns the `Passage`s of its page."""


DISPLAYS: Mapping[str, str] = {
    task: f"lengthwise.measure.{task}"
    for task in ("misalignment", "perplexity", "recall", "limit", "longppl", "influence", "served")
}
"""Task -> the module whose DISPLAY presents it, in the order of a page."""

TRAINING = Display(title="Training", question="What did training do?", answer="training_answer")
ORDER = [*DISPLAYS, "training"]

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


def display_of(task: str) -> Display:
    """The display of a task; a task of an evaluation or a study is shown under its own name."""
    if task in DISPLAYS:
        return importlib.import_module(DISPLAYS[task]).DISPLAY
    if task == "training":
        return TRAINING
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
    places = {
        task: (
            ORDER.index(task) if task in ORDER else len(ORDER),
            {metric: index for index, metric in enumerate(display_of(task).metrics)},
        )
        for task in {row.task for row in rows}
    }
    return sorted(
        rows,
        key=lambda row: (places[row.task][0], places[row.task][1].get(row.metric, len(places[row.task][1]))),
    )
