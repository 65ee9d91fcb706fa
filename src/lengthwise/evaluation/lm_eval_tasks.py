"""lm-eval's tasks, found by name and made for the wanted lengths, and its results as records of numbers.

RULER makes its data when a task is loaded, and BABILong chooses its data then, both from the metadata of the
task index. So these are loaded once for each length, and --limit counts samples of each length.
"""

from __future__ import annotations

import importlib.util
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from functools import lru_cache
from statistics import fmean
from typing import Any

from transformers import set_seed

from lengthwise.errors import MissingError, UsageError, reason
from lengthwise.measure.measurement import Record

_INSTALL = "pip install 'lengthwise[lm-eval]'"

# Prefixes of RULER's tasks, groups and tags, whose data are made for a wanted length.
_RULER = ("ruler", "niah_", "longcxt")
_RULER_METRIC = "string_match"
"""lm-eval names RULER's score after the length."""


@lru_cache(maxsize=1)
def load_tasks(settings: Any, tokenizer: Any) -> list[tuple[int | None, dict[str, Any]]]:
    """Tasks that run together: the tokens that their data are made for, and what `TaskManager.load` gives.

    The run's `data` is the working folder of the process. RULER counts its tokens with `tokenizer`.

    Raises:
        MissingError: a package or data are missing.
        UsageError: an unknown task, lengths that no task takes, or one that BABILong or RULER have no data for.
    """
    if importlib.util.find_spec("lm_eval") is None:
        raise MissingError("the package lm-eval is not installed", fix=_INSTALL)
    manager, metadata = _index(None if settings.data is None else os.getcwd())
    names: list[str] = []
    for wanted in settings.tasks:
        matched = manager.match_tasks([wanted])
        if not matched:
            raise UsageError(f"lm-eval has no task {wanted!r}", fix="lm_eval ls tasks shows its names")
        names += [name for name in matched if name not in names]
    babilong = [name for name in names if name.startswith("babilong")]
    ruler = [name for name in names if name.startswith(_RULER)]
    loads: list[tuple[int | None, list[str], Any]] = [
        (None, [name for name in names if name not in (*ruler, *babilong)], None)
    ]
    if "lengths" in settings.model_fields_set and not ruler and not babilong:
        raise UsageError(
            f"lengths are given, and none of {', '.join(names)} takes them",
            expected="a task of RULER or BABILong",
            fix="leave --length out",
        )
    for length in sorted(settings.lengths):
        # BABILong's data of 4096 and of 4000 tokens are both called "4k".
        thousands = length / (1024 if length % 1024 == 0 else 1000)
        loads += [(length, ruler, [length]), (length, babilong, f"{thousands:g}k")]
    found: list[tuple[int | None, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        # RULER takes its tokenizer by name; so it gets the model's own, wherever that is from.
        tokenizer.save_pretrained(folder)
        for length, some, lengths in loads:
            metadata.clear()
            metadata |= {"tokenizer": folder} | ({"max_seq_lengths": lengths} if lengths else {})
            if some:
                found.append((length, _loaded(manager, some, settings.seed)))
    return found


@lru_cache(maxsize=1)
def _index(folder: str | None) -> tuple[Any, dict[str, Any]]:
    """lm-eval's index of its tasks and of those in `folder`, and the metadata that it gives to tasks.

    Reading its 14 thousand names takes seconds, so the index is kept and its metadata change.
    """
    from lm_eval.tasks import TaskManager

    metadata: dict[str, Any] = {"tokenizer": ""}
    return TaskManager(include_path=folder, metadata=metadata), metadata


def _loaded(manager: Any, names: list[str], seed: int) -> dict[str, Any]:
    set_seed(seed)
    try:
        loaded = manager.load(names)
    except ValueError as error:
        raise UsageError(f"lm-eval cannot make {', '.join(names)}: {reason(error)}") from error
    except (ImportError, OSError, LookupError) as error:
        raise MissingError(
            f"lm-eval cannot load {', '.join(names)} or what it needs: {reason(error)}",
            fix=f"{_INSTALL}; on a machine without the hub --data FOLDER with the data sets in the hub's layout",
        ) from error
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            raise UsageError(
                f"{name} of lm-eval runs code that the model writes, or shows it images",
                expected="a task of text in and text out",
                fix="run it with lm_eval itself",
            )
        # As `lm_eval.simple_evaluate` does.
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=seed)
    return loaded


def load_numbers(
    length: int | None,
    groups: Mapping[str, Any],
    found: Mapping[str, Any],
    cut: set[tuple[str, int | None, str]],
) -> list[Record]:
    """The numbers of tasks that ran together, then of their groups.

    `found` is what lm-eval's `evaluate` gives for data of so many tokens (None: their own), `cut` are the task,
    length and number of each document with a prompt that was cut. A record has the fields of the number's row, and
    where it is a mean the scores [document, score] of its samples. NaN or an infinity is no value; `undefined` then
    says which.
    """

    def record(task: str, metric: str, value: float, *, share: bool, samples: Any, **counts: int) -> Record:
        undefined = {} if math.isfinite(value) else {"undefined": str(value)}
        # Of groups it is a text.
        version = str(found["versions"].get(task)).partition(".")[0]
        row = {
            "task": task,
            "metric": metric,
            "value": None if undefined else value,
            "unit": "share" if share else "score",
            "length": length,
            "version": int(version) if version.isdecimal() else None,
            **counts,
        }
        return {"row": row, "samples": samples, **undefined}

    numbers: list[Record] = []
    for task, samples in found["samples"].items():
        for metric, kind, name, value in _scores(length, found["results"][task]):
            own = [sample for sample in samples if sample["filter"] == kind]
            values = [sample.get(metric) for sample in own]
            plain = values and all(isinstance(each, int | float) and math.isfinite(each) for each in values)
            is_mean = bool(plain) and abs(fmean(values) - value) <= 1e-9
            numbers.append(
                record(
                    task,
                    name,
                    value,
                    share=is_mean and all(0 <= each <= 1 for each in values),
                    samples=[[str(one["doc_id"]), float(one[metric])] for one in own] if is_mean else [],
                    n=len(own),
                    truncated=sum((task, length, str(sample["doc_id"])) in cut for sample in own),
                )
            )
    rows = [number["row"] for number in numbers]
    for group, members in groups.items():
        names = {task.task_name for task in members.get_all_tasks()}
        own = [row for row in rows if row["task"] in names]
        averages = {name: value for _, _, name, value in _scores(length, found["results"][group])}
        # lm-eval averages RULER at 4096 tokens only; here that is the mean over tasks.
        ruler = [row["value"] for row in own if row["metric"] == _RULER_METRIC]
        # A mean with an undefined part is undefined.
        ruler = [math.nan if value is None else value for value in ruler]
        for metric, value in ({_RULER_METRIC: fmean(ruler)} if ruler else averages).items():
            of = [row for row in own if row["metric"] == metric]
            share = all(row["unit"] == "share" for row in of)
            counts = {name: sum(row[name] for row in of) for name in ("n", "truncated")}
            numbers.append(record(group, metric, value, share=share, samples=[], **counts))
    return numbers


def _scores(length: int | None, values: Mapping[str, Any]) -> Iterator[tuple[str, str, str, float]]:
    """Metric, filter, both as one name, and value of what are scores among the values of a task or group."""
    for key, value in values.items():
        metric, _, kind = key.partition(",")
        # RULER's tasks have a score for each length, -1 for the lengths of other loads.
        other_length = metric.isdecimal() and metric != str(length)
        if kind and not metric.endswith("_stderr") and isinstance(value, int | float) and not other_length:
            name = _RULER_METRIC if metric.isdecimal() else metric
            yield metric, kind, name if kind == "none" else f"{name} ({kind})", float(value)
