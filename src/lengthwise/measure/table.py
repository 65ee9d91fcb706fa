"""The table of verbs that measure. Literal and without torch: a module is imported when its verb is used."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Entry:
    """One measurement and its verb."""

    place: str
    """The `Measurement`, as "module:class"."""
    task: str
    """The task of its rows; empty where each row has its own."""
    summary: str
    """One line for the list of verbs."""

    @property
    def measurement(self) -> Any:
        """The class."""
        module, _, name = self.place.partition(":")
        return getattr(importlib.import_module(f"lengthwise.{module}"), name)


MEASUREMENTS = {
    "measure": Entry(
        "measure.misalignment:Misalignment",
        "misalignment",
        "Does cutting off early context change the predictions?",
    ),
    "ppl": Entry(
        "measure.perplexity:Perplexity",
        "perplexity",
        "How well are the same tokens predicted at each length?",
    ),
    "limit": Entry("measure.limit:Limit", "limit", "Where does the useful context end, on this text?"),
    "longppl": Entry(
        "measure.longppl:LongPpl",
        "longppl",
        "How well are the tokens predicted that need far context?",
    ),
    "compare": Entry(
        "measure.comparison:Comparison", "difference", "Do two configurations of a model predict alike?"
    ),
    "predictions": Entry(
        "measure.repeated_windows:KeptPredictions", "kept_predictions", "Predictions of one side, kept."
    ),
    "eval": Entry("evaluation.evaluate:Evaluation", "", "Does a model answer questions over long input?"),
}
"""By verb. `predictions` has none: they are what `compare` keeps of one model."""


def by_task() -> dict[str, Entry]:
    """The entries by the task of their rows; the tasks of an evaluation are not among them."""
    return {entry.task: entry for entry in MEASUREMENTS.values() if entry.task}
