"""lm-eval's scores as rows of our schema, with our intervals where a score is a mean over samples."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.harness.requests import Place
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.harness.tasks import Part
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.samples import SampleLog

RULER_METRIC = "string_match"
"""lm-eval names RULER's score after the length."""


def part_rows(
    job: EvalJob, part: Part, found: Mapping[str, Any], cuts: Mapping[Place, int], log: SampleLog
) -> list[Row]:
    """The scores of one part: of its tasks, then of its groups. Scores that are means go to `log` by sample."""
    rows: list[Row] = []
    for task, every in found["samples"].items():
        cut = {place for place, tokens in cuts.items() if place[0] == task and tokens}
        for metric, kind, value in _scores(part, found["results"][task]):
            samples = [sample for sample in every if sample["filter"] == kind]
            row = Row(
                model=job.model,
                task=task,
                metric=_named(part, metric, kind),
                value=value,
                unit="score",
                length=part.length,
                version=_version(found["versions"].get(task)),
                n=len(samples),
                truncated=sum((task, sample["doc_id"]) in cut for sample in samples),
            )
            rows.append(_as_mean(row, samples, metric, log))
    return rows + [
        row for group in part.loaded["groups"] for row in _group_rows(job, part, found, rows, group)
    ]


def _scores(part: Part, scores: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Metric, filter and value of what are scores among the values of a task or group."""
    found: list[tuple[str, str, float]] = []
    for name, value in scores.items():
        metric, _, kind = name.partition(",")
        if not kind or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        # RULER's tasks have a score for each length; one that was not asked about is -1.
        if not part.ruler or metric == str(part.length):
            found.append((metric, kind, float(value)))
    return found


def _named(part: Part, metric: str, kind: str) -> str:
    name = RULER_METRIC if part.ruler else metric
    return name if kind == "none" else f"{name} ({kind})"


def _as_mean(row: Row, samples: Sequence[Mapping[str, Any]], metric: str, log: SampleLog) -> Row:
    """With our interval where lm-eval's score is the mean over samples, whose scores are logged; else as it is."""
    values = [sample.get(metric) for sample in samples]
    if not values or not all(isinstance(value, int | float) for value in values):
        return row
    records = [(str(s["doc_id"]), [float(s[metric]), 1.0]) for s in samples]
    made = estimate(Statistic.of(row, records))
    if made.value is None or abs(made.value - (row.value or 0.0)) > 1e-9:
        return row
    for sample, (document, (score, _)) in zip(samples, records, strict=True):
        key = "/".join([row.task, row.metric, *([f"L{row.length}"] if row.length else []), document])
        if key not in log:
            # What comparing runs needs: the score, and whether it is of the same question.
            log.append(
                key,
                {
                    "document": document,
                    "task": f"{row.task}/{row.metric}",
                    "crc": zlib.crc32(f"{sample['prompt_hash']}{sample['target_hash']}".encode()),
                    "score": score,
                },
            )
    return replace(made, unit="share") if all(0 <= score <= 1 for _, (score, _) in records) else made


def _group_rows(
    job: EvalJob, part: Part, found: Mapping[str, Any], rows: Sequence[Row], group: str
) -> list[Row]:
    """lm-eval's averages of a group; of RULER, which it averages at 4096 tokens only, the plain mean over tasks."""
    names = {task.task_name for task in part.loaded["groups"][group].get_all_tasks()}
    own = [row for row in rows if row.task in names]
    averages = {
        _named(part, metric, kind): value for metric, kind, value in _scores(part, found["results"][group])
    }
    if part.ruler:
        averages = {RULER_METRIC: fmean(row.value for row in own if row.value is not None)}
    made: list[Row] = []
    for metric, value in averages.items():
        of = [row for row in own if row.metric == metric]
        made.append(
            Row(
                model=job.model,
                task=group,
                metric=metric,
                value=value,
                unit="share" if all(row.unit == "share" for row in of) else "score",
                length=part.length,
                version=_version(found["versions"].get(group)),
                n=sum(row.n or 0 for row in of),
                truncated=sum(row.truncated for row in of),
            )
        )
    return made


def _version(version: Any) -> int | None:
    try:
        return int(float(version))
    except (TypeError, ValueError):
        return None
