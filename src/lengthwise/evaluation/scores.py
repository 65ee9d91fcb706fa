"""Scores of questions as numbers with intervals, from the log's records alone, and the notes that belong to them.

A record has the question's `document` (the unit of the bootstrap), `task`, `version`, `length`, `depth`, `bucket`,
`cut` (tokens) and `score`; with likelihoods also `probability`, `gold_loss` and `chance`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lengthwise.evaluation.averages import score_row
from lengthwise.evaluation.family import Task
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.evaluation.tasks import FAMILIES
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.results import Results, Row

RANKED = {"accuracy": "score", "gold_probability": "probability", "gold_loss": "gold_loss"}
"""The metrics of ranked answers, each with its field in a record."""


def run_statistics(tasks: Sequence[Task], records: Sequence[Record]) -> list[Statistic]:
    """Every number of every task, then of every family."""
    found: list[Statistic] = []
    for task in tasks:
        found += task_statistics(task, [record for record in records if record["task"] == task.name])
    for family in FAMILIES:
        own = [task for task in tasks if task in family.tasks]
        if own:
            names = {task.name for task in own}
            found += family.statistics(own, [record for record in records if record["task"] in names])
    return found


def task_statistics(task: Task, records: Sequence[Record]) -> list[Statistic]:
    """The scores of one task by length, then by depth and by bucket."""
    metrics = RANKED if records and "probability" in records[0] else {task.metric: "score"}
    found: list[Statistic] = []
    for metric, field in metrics.items():
        for length in sorted({record["length"] for record in records}, key=lambda length: length or 0):
            at = [record for record in records if record["length"] == length]
            found.append(_mean(task, metric, at, field, length=length))
            if metric == "accuracy" and "chance" in at[0]:
                found.append(_mean(task, "chance", at, "chance", length=length))
            for depth in sorted({record["depth"] for record in at if record["depth"] is not None}):
                some = [record for record in at if record["depth"] == depth]
                found.append(_mean(task, metric, some, field, length=length, depth=depth))
            for bucket in sorted({record["bucket"] for record in at if record["bucket"] is not None}):
                some = [record for record in at if record["bucket"] == bucket]
                found.append(_mean(task, metric, some, field, bucket=bucket))
    return found


def _mean(task: Task, metric: str, records: Sequence[Record], field: str, **where: Any) -> Statistic:
    """The mean of one field of the records."""
    row = score_row(task.name, metric, records, version=task.version, **where)
    return Statistic.of(row, [(record["document"], [record[field], 1]) for record in records])


def score_rows(statistics: Sequence[Statistic]) -> list[Row]:
    """The scores with their intervals; chance is known and has none."""
    known = {"documents": None, "stderr": None, "ci_low": None, "ci_high": None, "truncated": 0}
    rows = [estimated(statistic) for statistic in statistics]
    return [replace(row, **known) if row.metric == "chance" else row for row in rows]


def run_notes(settings: EvaluationSettings, tasks: Sequence[Task], results: Results) -> list[str]:
    """What a reader of the scores must know."""
    records = list(results.records.values())
    notes: list[str] = []
    for task in tasks:
        notes += _task_notes(settings, task, [record for record in records if record["task"] == task.name])
    for family in FAMILIES:
        own = [task for task in tasks if task in family.tasks]
        notes += family.notes(own) if own else []
    notes.append("Scores are shares from 0 to 1; papers print them times 100.")
    if any(row.metric == "gold_loss" for row in results.rows):
        notes.append("gold_loss is -log of the right answer's probability among the ranked answers, in nats.")
    if any(row.value in (0.0, 1.0) and row.ci_low is not None for row in results.rows):
        notes.append("If all samples score 0, or all 1, the interval is the exact one of a binomial share.")
    return notes


def estimated(statistic: Statistic) -> Row:
    """The row with its interval; if all units score 0, or all 1, with the exact one of a binomial share.

    The bootstrap would give an interval of no width there, as if no other score were possible. If all units
    agree on a score between 0 and 1 there is no spread to estimate an interval from, and none is given.
    """
    if not statistic.documents:
        return statistic.row
    row = estimate(statistic)
    if row.documents is None or row.stderr != 0:
        return row
    if row.value not in (0.0, 1.0):
        return replace(row, ci_low=None, ci_high=None, stderr=None)
    far = 0.025 ** (1 / row.documents)
    return replace(row, ci_low=far) if row.value else replace(row, ci_high=1 - far)


def _task_notes(settings: EvaluationSettings, task: Task, records: Sequence[Record]) -> list[str]:
    notes: list[str] = []
    cut = [record["cut"] for record in records if record["cut"]]
    if cut:
        where = {"middle": "in the middle", "left": "at the beginning"}[settings.truncation or "middle"]
        notes.append(
            f"{len(cut)} of {len(records)} prompts of {task.name} were cut {where} to {settings.max_length} tokens "
            f"({sum(cut) / len(cut):.0f} tokens of each on average)."
        )
    off = [
        abs(record["reached"] * 100 - record["depth"])
        for record in records
        if record["reached"] is not None and record["depth"] is not None
    ]
    if off and max(off) >= 2:
        notes.append(
            f"In {task.name} an answer is up to {max(off):.0f} points away from its depth: sentences are not split."
        )
    if task.cut_to_limit and settings.samples is not None:
        notes.append(f"{task.name} has only its first {settings.samples} rows.")
    return notes
