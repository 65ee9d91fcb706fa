"""lm-eval's results as records of numbers, each with the scores of its samples if it is their mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

from lengthwise.measure.measurement import Record

RULER_METRIC = "string_match"
"""lm-eval names RULER's score after the length."""

Place = tuple[str, int | None, str]
"""A document: task, tokens that its data are made for, number."""


def load_numbers(
    length: int | None, groups: Mapping[str, Any], found: Mapping[str, Any], cut: set[Place]
) -> list[Record]:
    """The numbers of tasks that ran together, then of their groups.

    Args:
        length: tokens that their data are made for, None if the data have their own length.
        groups: lm-eval's groups by name.
        found: what its `evaluate` gives.
        cut: the documents with a prompt that was cut.
    """
    numbers = [record for task in found["samples"] for record in _task_numbers(length, task, found, cut)]
    rows = [record["row"] for record in numbers]
    for group, members in groups.items():
        names = {task.task_name for task in members.get_all_tasks()}
        own = [row for row in rows if row["task"] in names]
        averages = {name: value for _, _, name, value in _scores(length, found["results"][group])}
        # lm-eval averages RULER at 4096 tokens only; here that is the mean over tasks.
        ruler = [row["value"] for row in own if row["metric"] == RULER_METRIC]
        for metric, value in ({RULER_METRIC: fmean(ruler)} if ruler else averages).items():
            of = [row for row in own if row["metric"] == metric]
            row = {
                "task": group,
                "metric": metric,
                "value": value,
                "unit": "share" if all(row["unit"] == "share" for row in of) else "score",
                "length": length,
                "version": _version(found, group),
                "n": sum(row["n"] for row in of),
                "truncated": sum(row["truncated"] for row in of),
            }
            numbers.append({"row": row, "samples": None})
    return numbers


def _task_numbers(
    length: int | None, task: str, found: Mapping[str, Any], cut: set[Place]
) -> Iterator[Record]:
    """The scores of a task, each with those of its samples [document, score] if it is their mean."""
    for metric, kind, name, value in _scores(length, found["results"][task]):
        own = [sample for sample in found["samples"][task] if sample["filter"] == kind]
        values = [sample.get(metric) for sample in own]
        numbers = values and all(isinstance(each, int | float) for each in values)
        is_mean = numbers and abs(fmean(values) - value) <= 1e-9
        row = {
            "task": task,
            "metric": name,
            "value": value,
            "unit": "share" if is_mean and all(0 <= each <= 1 for each in values) else "score",
            "length": length,
            "version": _version(found, task),
            "n": len(own),
            "truncated": sum((task, length, str(sample["doc_id"])) in cut for sample in own),
        }
        samples = [[str(sample["doc_id"]), float(sample[metric])] for sample in own] if is_mean else None
        yield {"row": row, "samples": samples}


def _scores(length: int | None, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float]]:
    """Metric, filter, both as one name, and value of what are scores among the values of a task or group."""
    for key, value in values.items():
        metric, _, kind = key.partition(",")
        # RULER's tasks have a score for each length, -1 for the lengths of other loads.
        other_length = metric.isdecimal() and metric != str(length)
        if kind and not metric.endswith("_stderr") and isinstance(value, int | float) and not other_length:
            name = RULER_METRIC if metric.isdecimal() else metric
            yield metric, kind, name if kind == "none" else f"{name} ({kind})", float(value)


def _version(found: Mapping[str, Any], name: str) -> int | None:
    # Of groups it is a text.
    version = str(found["versions"].get(name)).partition(".")[0]
    return int(version) if version.isdecimal() else None
