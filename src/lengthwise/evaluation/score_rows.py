"""Scores of an evaluation as rows with intervals, and the notes that belong to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.evaluate import Summary
from lengthwise.evaluation.family import Scored, Task
from lengthwise.evaluation.tasks import FAMILIES
from lengthwise.measure.statistics import Statistic, Tree, estimate, few_documents, mean_of_ratios
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.evaluate import EvalSpec


@dataclass(frozen=True)
class Ranked:
    """A metric of ranked answers: its field in the log, and its unit."""

    field: str
    unit: str = "share"


RANKED = {
    "accuracy": Ranked("score"),
    "gold_probability": Ranked("probability"),
    # Logs of earlier versions have none.
    "gold_loss": Ranked("gold_loss", "nats"),
}
BESIDE = frozenset(RANKED) - {"accuracy"}
"""What is said of an answer beside its score."""


def ranked_metrics(records: Collection[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics of `RANKED` that all records have, each with its field."""
    return {
        metric: ranked.field
        for metric, ranked in RANKED.items()
        if all(ranked.field in record for record in records)
    }


def unit_of(metric: str) -> str:
    """The unit of a score."""
    return RANKED[metric].unit if metric in RANKED else "share"


def summarise(
    spec: EvalSpec, tasks: Sequence[Task], scored: Sequence[Scored], *, model: str, partial: bool
) -> Summary:
    """The scores of the questions that are logged.

    Rows of each task by length and depth (or bucket), by length over all depths, and of each family. The
    bootstrap resamples units: samples (each with all its depths and tasks) or rows of a data set.
    """
    averages = Averages(model)
    rows: list[Row] = []
    notes: list[str] = []
    for task in tasks:
        of_task = [one for one in scored if one.task is task]
        rows += _task_rows(averages, task, of_task, ranked=spec.mode == "likelihood")
        notes += _task_notes(spec, task, of_task)
    for family in FAMILIES:
        own = [task for task in tasks if task in family.tasks]
        if own:
            rows += family.rows(own, [one for one in scored if one.task in own], averages)
            notes += family.notes(own)
    notes.append("Scores are shares from 0 to 1; papers print them times 100.")
    if any(row.metric == "gold_loss" for row in rows):
        notes.append("gold_loss is -log of the right answer's probability among the ranked answers, in nats.")
    if any(row.value in (0.0, 1.0) and row.ci_low is not None for row in rows):
        notes.append("If all samples score 0, or all 1, the interval is the exact one of a binomial share.")
    notes += few_documents(len({one.record["document"] for one in scored}), "samples")
    return Summary(rows, notes, partial)


@dataclass(frozen=True)
class Averages:
    """Makes rows of one model."""

    model: str

    def row(
        self,
        task: str,
        metric: str,
        placed: Sequence[tuple[int, Mapping[str, Any]]],
        tree: Tree,
        **where: Any,
    ) -> Row:
        """The mean over the branches of `tree` of their means. A branch without scores is left out.

        Args:
            task, metric: of the row.
            placed: records of the log, each with its cell of the tree.
            tree: see `mean_of_ratios`.
            where: other fields of the row.
        """
        used = set(_cells(tree))
        own = [(cell, record) for cell, record in placed if cell in used]
        row = self._blank(task, metric, [record for _, record in own], **where)
        if not own:
            return row
        records = []
        for cell, record in own:
            totals = [0.0] * (2 * (max(used) + 1))
            totals[2 * cell], totals[2 * cell + 1] = record["score"], 1.0
            records.append((record["document"], totals))
        return _estimated(Statistic.of(row, records, estimator=mean_of_ratios(tree)))

    def mean(self, task: Task, metric: str, scored: Sequence[Scored], field: str, **where: Any) -> Row:
        """The mean of one field of the log over questions of one task."""
        records = [one.record for one in scored]
        row = self._blank(task.name, metric, records, version=task.version, **where)
        return _estimated(Statistic.of(row, [(record["document"], [record[field], 1]) for record in records]))

    def _blank(self, task: str, metric: str, records: Sequence[Mapping[str, Any]], **where: Any) -> Row:
        return Row(
            model=self.model,
            task=task,
            metric=metric,
            value=None,
            unit=unit_of(metric),
            n=len(records),
            truncated=sum(record["cut"] > 0 for record in records),
            **where,
        )


def _task_rows(averages: Averages, task: Task, scored: Sequence[Scored], *, ranked: bool) -> list[Row]:
    rows: list[Row] = []
    lengths = sorted({one.question.length for one in scored}, key=lambda length: length or 0)
    metrics = ranked_metrics([one.record for one in scored]) if ranked else {task.metric: "score"}
    for metric, field in metrics.items():
        for length in lengths:
            at = [one for one in scored if one.question.length == length]
            rows.append(averages.mean(task, metric, at, field, length=length))
            if ranked and metric == "accuracy":
                chance = sum(one.record["chance"] for one in at) / len(at)
                rows.append(
                    Row(
                        model=averages.model, task=task.name, metric="chance", value=chance, unit="share",
                        length=length, version=task.version, n=len(at),
                    )
                )  # fmt: skip
            for depth in sorted({one.question.depth for one in at if one.question.depth is not None}):
                some = [one for one in at if one.question.depth == depth]
                rows.append(averages.mean(task, metric, some, field, length=length, depth=depth))
            for bucket in sorted({one.question.bucket for one in at if one.question.bucket is not None}):
                some = [one for one in at if one.question.bucket == bucket]
                rows.append(averages.mean(task, metric, some, field, bucket=bucket))
    return rows


def _estimated(statistic: Statistic) -> Row:
    """The row with its interval; if all units score 0, or all 1, with the exact one of a binomial share.

    The bootstrap would give an interval of no width there, as if no other score were possible. If all units
    agree on a score between 0 and 1 there is no spread to estimate an interval from, and none is given.
    """
    row = estimate(statistic)
    if row.documents is None or row.stderr != 0:
        return row
    if row.value not in (0.0, 1.0):
        return replace(row, ci_low=None, ci_high=None, stderr=None)
    far = 0.025 ** (1 / row.documents)
    return replace(row, ci_low=far) if row.value else replace(row, ci_high=1 - far)


def _cells(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [cell for branch in tree for cell in _cells(branch)]


def _task_notes(spec: EvalSpec, task: Task, scored: Sequence[Scored]) -> list[str]:
    notes: list[str] = []
    cut = [one.record["cut"] for one in scored if one.record["cut"]]
    if cut:
        where = {"middle": "in the middle", "left": "at the beginning"}[spec.truncation or "middle"]
        notes.append(
            f"{len(cut)} of {len(scored)} prompts of {task.name} were cut {where} to {spec.max_length} tokens "
            f"({sum(cut) / len(cut):.0f} tokens of each on average)."
        )
    off = [
        abs(one.question.reached * 100 - one.question.depth)
        for one in scored
        if one.question.reached is not None and one.question.depth is not None
    ]
    if off and max(off) >= 2:
        notes.append(
            f"In {task.name} an answer is up to {max(off):.0f} points away from its depth: sentences are not split."
        )
    if task.cut_to_limit and spec.samples is not None:
        notes.append(f"{task.name} has only its first {spec.samples} rows.")
    return notes
