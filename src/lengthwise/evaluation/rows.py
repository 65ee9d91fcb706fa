"""Scores of an evaluation as rows with intervals, and the sentences that belong to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.longbench_e import BUCKETS, DATA_SETS
from lengthwise.evaluation.preparing import Asked, Prepared
from lengthwise.evaluation.tasks import GROUPS, TASKS, Task
from lengthwise.measure.statistics import Statistic, Tree, estimate, few_documents, mean_of_ratios
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.samples import SampleLog

# In the mode that ranks answers: metric, and its field in the log.
_RANKED = {"accuracy": "score", "gold_probability": "probability"}


@dataclass(frozen=True)
class Summary:
    """What a run says, as far as it came."""

    rows: list[Row]
    notes: list[str]
    partial: bool


def summarise(job: EvalJob, prepared: Prepared, log: SampleLog) -> Summary:
    """The scores of what `log` holds of the questions.

    Rows of each task by length and depth (or bucket), by length over all depths, and of groups of tasks.
    Intervals resample samples (each with all its depths and tasks) or rows of a data set.
    """
    finished = [(one, log[one.question.key]) for one in prepared.asked if one.question.key in log]
    rows: list[Row] = []
    notes: list[str] = []
    for task in prepared.tasks:
        of_task = [(one, record) for one, record in finished if one.task is task]
        rows += _task_rows(job, task, of_task)
        notes += _task_notes(job, task, prepared, of_task)
    rows += _babilong_rows(job, prepared, finished) + _longbench_rows(job, prepared, finished)
    if any(task.kind == "longbench_e" for task in prepared.tasks):
        notes.append(_averages_note(prepared))
    notes.append("Scores are shares from 0 to 1; papers print them times 100.")
    if any(row.value in (0.0, 1.0) and row.ci_low is not None for row in rows):
        notes.append(
            "Where all samples score alike, 0 or 1, the interval is the exact one of a binomial share."
        )
    notes += few_documents(len({record["document"] for _, record in finished}), "samples")
    return Summary(rows, notes, partial=len(finished) < len(prepared.asked))


Finished = Sequence[tuple[Asked, dict[str, Any]]]


def _task_rows(job: EvalJob, task: Task, finished: Finished) -> list[Row]:
    rows: list[Row] = []
    metrics = _RANKED if job.mode == "likelihood" else {task.metric: "score"}
    lengths = sorted({one.question.length for one, _ in finished}, key=lambda length: length or 0)
    for metric, entry in metrics.items():
        for length in lengths:
            at = [(one, record) for one, record in finished if one.question.length == length]
            rows.append(_mean(job, task.name, metric, at, entry, length=length, version=task.version))
            if job.mode == "likelihood" and metric == "accuracy":
                chance = sum(record["chance"] for _, record in at) / len(at)
                rows.append(
                    Row(
                        model=job.model, task=task.name, metric="chance", value=chance, unit="share",
                        length=length, version=task.version, n=len(at),
                    )
                )  # fmt: skip
            for depth in sorted({one.question.depth for one, _ in at if one.question.depth is not None}):
                some = [(one, record) for one, record in at if one.question.depth == depth]
                rows.append(
                    _mean(
                        job, task.name, metric, some, entry, length=length, depth=depth, version=task.version
                    )
                )
            for bucket in BUCKETS:
                some = [(one, record) for one, record in at if one.question.bucket == bucket]
                if some:
                    rows.append(
                        _mean(job, task.name, metric, some, entry, bucket=bucket, version=task.version)
                    )
    return rows


def _mean(job: EvalJob, task: str, metric: str, finished: Finished, entry: str, **where: Any) -> Row:
    row = Row(
        model=job.model,
        task=task,
        metric=metric,
        value=None,
        unit="share",
        n=len(finished),
        truncated=sum(record["cut"] > 0 for _, record in finished),
        **where,
    )
    return _estimated(Statistic.of(row, [(r["document"], [r[entry], 1]) for _, r in finished]))


def _estimated(statistic: Statistic) -> Row:
    """The row with its interval; where all samples score 0, or all 1, with the exact one of a binomial share.

    The bootstrap would give an interval of no width there, as if nothing else could come. Where the samples all
    score the same between 0 and 1 there is nothing to make an interval from, and none is given.
    """
    row = estimate(statistic)
    if row.documents is None or row.stderr != 0:
        return row
    if row.value not in (0.0, 1.0):
        return replace(row, ci_low=None, ci_high=None, stderr=None)
    far = 0.025 ** (1 / row.documents)
    return replace(row, ci_low=far) if row.value else replace(row, ci_high=1 - far)


def _babilong_rows(job: EvalJob, prepared: Prepared, finished: Finished) -> list[Row]:
    """The plain mean of the tasks' accuracies, by length and by depth: how BABILong is summed up."""
    tasks = [task.name for task in prepared.tasks if task.kind == "babilong"]
    if len(tasks) < 2:
        return []
    of = [
        (one.question, tasks.index(one.task.name), record)
        for one, record in finished
        if one.task.name in tasks
    ]
    groups = [[index] for index in range(len(tasks))]
    rows: list[Row] = []
    for length in sorted({question.length or 0 for question, _, _ in of}):
        for depth in (None, *sorted(job.depths)):
            placed = [
                (index, record)
                for question, index, record in of
                if question.length == length and depth in (None, question.depth)
            ]
            if placed:
                where: dict[str, Any] = {"length": length, "depth": depth, "version": TASKS[tasks[0]].version}
                rows.append(_mean_of_means(job, "babilong", "accuracy", placed, groups, **where))
    return rows


def _longbench_rows(job: EvalJob, prepared: Prepared, finished: Finished) -> list[Row]:
    """The three averages of LongBench-E; cells are data set x bucket."""
    tasks = [task for task in prepared.tasks if task.kind == "longbench_e"]
    of = [(one, record) for one, record in finished if one.task in tasks]
    if not of:
        return []
    cells = {
        (task.name, bucket): index * len(BUCKETS) + place
        for index, task in enumerate(tasks)
        for place, bucket in enumerate(BUCKETS)
    }
    placed = [(cells[one.task.name, one.question.bucket or ""], record) for one, record in of]
    sets = [[cells[task.name, bucket] for bucket in BUCKETS] for task in tasks]
    categories: dict[str, list[list[int]]] = {}
    for task, own in zip(tasks, sets, strict=True):
        categories.setdefault(DATA_SETS[task.part].category, []).append(own)
    buckets = [[[cells[task.name, bucket]] for task in tasks] for bucket in BUCKETS]
    where: dict[str, Any] = {"version": tasks[0].version}
    name = "longbench_e"
    return [
        _mean_of_means(job, name, "average_rows", placed, sets, **where),
        _mean_of_means(job, name, "average_categories", placed, list(categories.values()), **where),
        _mean_of_means(job, name, "average_buckets", placed, buckets, **where),
        *(
            _mean_of_means(job, name, "average_rows", placed, of_bucket, bucket=bucket, **where)
            for bucket, of_bucket in zip(BUCKETS, buckets, strict=True)
        ),
    ]


def _mean_of_means(
    job: EvalJob,
    task: str,
    metric: str,
    placed: Sequence[tuple[int, dict[str, Any]]],
    tree: Tree,
    **where: Any,
) -> Row:
    """The mean over the branches of `tree` of their means; a branch without rows is left out."""
    used = set(_cells(tree))
    own = [(cell, record) for cell, record in placed if cell in used]
    size = 2 * (max(used) + 1)
    row = Row(
        model=job.model,
        task=task,
        metric=metric,
        value=None,
        unit="share",
        n=len(own),
        truncated=sum(record["cut"] > 0 for _, record in own),
        **where,
    )
    if not own:
        return row
    records = []
    for cell, record in own:
        totals = [0.0] * size
        totals[2 * cell], totals[2 * cell + 1] = record["score"], 1.0
        records.append((record["document"], totals))
    return _estimated(Statistic.of(row, records, estimator=mean_of_ratios(tree)))


def _cells(tree: Any) -> list[int]:
    return [tree] if isinstance(tree, int) else [cell for branch in tree for cell in _cells(branch)]


def _task_notes(job: EvalJob, task: Task, prepared: Prepared, finished: Finished) -> list[str]:
    notes: list[str] = []
    cut = [record["cut"] for _, record in finished if record["cut"]]
    if cut:
        where = {"middle": "in the middle", "left": "at the beginning"}[job.truncation or "middle"]
        notes.append(
            f"{len(cut)} of {len(finished)} prompts of {task.name} were cut {where} to {job.max_length} tokens "
            f"({sum(cut) / len(cut):.0f} tokens of each on average)."
        )
    off = [
        abs(one.question.reached * 100 - one.question.depth)
        for one in prepared.of(task)
        if one.question.reached is not None and one.question.depth is not None
    ]
    if off and max(off) >= 2:
        notes.append(
            f"In {task.name} an answer stands up to {max(off):.0f} points of depth from where it was wanted: "
            "sentences do not split."
        )
    if task.kind == "longbench_e" and job.samples is not None:
        notes.append(f"Of {task.name} only the first {job.samples} rows were asked.")
    return notes


def _averages_note(prepared: Prepared) -> str:
    names = [task.part for task in prepared.tasks if task.kind == "longbench_e"]
    whole = "" if len(names) == len(GROUPS["longbench_e"]) else f" Here: {len(names)} of 13 data sets."
    return (
        "average_rows is the mean over data sets of all their rows, average_categories the mean over categories of "
        f"their data sets, average_buckets the mean over the three buckets of the mean over data sets.{whole}"
    )
