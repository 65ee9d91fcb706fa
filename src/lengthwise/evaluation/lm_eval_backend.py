"""lm-eval's tasks as a backend of `lengthwise eval`, with its scores as rows of our schema.

The items are its requests, answered by its own HF model; its scores are made from all replies at the end.
`max_length` is passed on; otherwise lm-eval would read the trained length from the configuration and cut every
longer prompt to it. Prompts over the limit are refused before the model is asked anything; with a truncation they
are counted: left is lm-eval's own, middle keeps both ends of prompts with replies.

Local copies of data sets: with `data` lm-eval runs in that folder, where a data set `owner/name` is the folder
of that name in the hub's layout. Task files (YAML) in it are known by name too.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lengthwise.errors import MissingError, UsageError
from lengthwise.evaluation.lm_eval_requests import Size, answer, in_batches, keyed, replay, size_of
from lengthwise.evaluation.lm_eval_tasks import TaskLoad, load_tasks, seed_everything
from lengthwise.evaluation.prompts import refuse_over_limit
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.measure.measurement import Item, Record
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.models import weights_of
from lengthwise.results import Results, Row

if TYPE_CHECKING:
    from lengthwise.models import Predictor
    from lengthwise.text import Corpus

RULER_METRIC = "string_match"
"""lm-eval names RULER's score after the length."""
_WEIGHTS = {
    "needs": "this backend asks for logits",
    "fix": "--backend native, or lm-eval's own local-completions",
}


@dataclass(frozen=True)
class _Asked:
    """A request with its size, and everything that asks it: (task, document), once for each time."""

    request: Any
    size: Size
    places: list[tuple[str, int]] = field(default_factory=list)


def items(settings: EvaluationSettings, tokenizer: Any, corpus: Corpus | None) -> list[Item]:
    """The requests of all tasks, each once.

    Raises:
        MissingError: lm-eval is not installed, or data cannot be loaded.
        UsageError: an unknown task, or a reply as long as the limit.
    """
    assert settings.max_length is not None
    found: dict[str, _Asked] = {}
    with _surroundings(settings):
        for load in _loads(settings, tokenizer):
            requests = _requests(settings, load)
            for key, request in zip(keyed(requests), requests, strict=True):
                if key not in found:
                    found[key] = _Asked(request, size_of(request, tokenizer, settings.max_length))
                found[key].places.append((request.task_name, request.doc_id))
    return [
        Item(
            key=key,
            facts={"document": str(one.request.doc_id), "task": one.request.task_name},
            content=one,
            tokens=one.size.prompt + one.size.reply - one.size.over,
            longest=min(one.size.prompt, settings.max_length),
            stretch=0,
        )
        for key, one in found.items()
    ]


def batches(settings: EvaluationSettings, items: Sequence[Item]) -> list[list[Item]]:
    """Requests of one kind, up to `batch_size` contexts at a time, the longest first."""
    found: list[list[Item]] = []
    for kind in dict.fromkeys(item.content.request.request_type for item in items):
        own = [item for item in items if item.content.request.request_type == kind]
        found += in_batches(own, settings.batch_size)
    return found


def check(settings: EvaluationSettings, model: Predictor, items: Sequence[Item]) -> None:
    """Refuse an endpoint, and prompts over the limit unless a truncation that works is chosen."""
    weights_of(model, **_WEIGHTS)
    over = [item.content for item in items if item.content.size.over]
    if not over:
        return
    assert settings.max_length is not None
    names = ", ".join(dict.fromkeys(one.request.task_name for one in over))
    if settings.truncation is None:
        sizes = [one.size.over + settings.max_length for one in over]
        raise refuse_over_limit(f"{names} (replies counted)", sizes, len(items), settings.max_length)
    ranked = sum(one.request.request_type == "loglikelihood" for one in over)
    if settings.truncation == "middle" and ranked:
        raise UsageError(
            f"{ranked} of {len(items)} prompts of {names} are too long, and lm-eval cuts prompts with ranked "
            "answers only at the beginning",
            fix="--truncation left, or a greater --max-length",
        )


def score(settings: EvaluationSettings, model: Predictor, items: Sequence[Item]) -> Iterator[Record]:
    """The replies to a batch of requests."""
    requests = [item.content.request for item in items]
    with _surroundings(settings):
        replies = answer(settings, weights_of(model, **_WEIGHTS), [item.key for item in items], requests)
    for reply in replies:
        yield {"reply": reply}


def finish(
    settings: EvaluationSettings, model: Predictor, items: Sequence[Item], records: Mapping[str, Record]
) -> dict[str, Record]:
    """lm-eval's scores: a record for each number, with the samples' scores where it is their mean."""
    replies = {item.key: records[item.key]["reply"] for item in items}
    cut = {place for item in items if item.content.size.over for place in item.content.places}
    found: dict[str, Record] = {}
    tasks: dict[str, Any] = {}
    with _surroundings(settings):
        for load in _loads(settings, model.tokenizer):
            _requests(settings, load)
            scored = _scored(settings, load, replay(replies))
            numbers = list(_task_numbers(load, scored, cut))
            rows = [row for row, _ in numbers]
            for group in load.loaded["groups"]:
                numbers += [(row, None) for row in _group_rows(load, scored, rows, group)]
            for row, samples in numbers:
                found[f"score/{len(found):06d}"] = {"row": _plain(row), "samples": samples}
            tasks |= _described(tasks, scored)
    version = importlib.import_module("lm_eval").__version__
    return found | {"tasks": {"tasks": tasks, "lm_eval": version}}


def statistics(settings: EvaluationSettings, records: Sequence[Record]) -> list[Statistic]:
    """The scores that are means over samples."""
    return [_statistic(record) for record in records if record.get("samples")]


def rows(statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
    """All scores, those that are means with our interval."""
    return [
        estimate(_statistic(record)) if record["samples"] else _row(record)
        for record in records
        if "row" in record
    ]


def describe(items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
    """What a result records of the tasks, and lm-eval's version."""
    return dict(records.get("tasks", {}))


def plan(items: Sequence[Item]) -> dict[str, Any]:
    """Requests by task and by kind, and how many are over the limit."""
    tasks: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    over: Counter[str] = Counter()
    for item in items:
        for task, _ in item.content.places:
            tasks[task] += 1
            kinds[item.content.request.request_type] += 1
            over[task] += item.content.size.over > 0
    return {
        "questions": dict(tasks),
        "requests": dict(kinds),
        "over_max_length": dict(over),
        "longest_prompt": max(item.content.size.prompt for item in items),
        "tokens_to_run": sum(item.tokens * len(item.content.places) for item in items),
    }


def notes(settings: EvaluationSettings, items: Sequence[Item], results: Results) -> list[str]:
    """Whose scores these are, what was cut, and how many samples each task has."""
    found = [
        f"Tasks, prompts and scores are lm-eval's, with max_length {settings.max_length} and without a chat template."
    ]
    places = {place for item in items for place in item.content.places}
    cut = {place for item in items if item.content.size.over for place in item.content.places}
    if cut:
        where = "in the middle" if settings.truncation == "middle" else "at the beginning"
        found.append(
            f"{len(cut)} of {len(places)} prompts were cut {where} to fit into {settings.max_length} tokens."
        )
    if settings.samples is not None:
        each = " at each length" if any(row.length for row in results.rows) else ""
        found.append(f"Each task has only its first {settings.samples} samples{each}.")
    if any(row.task == "ruler" for row in results.rows):
        found.append("ruler is the plain mean over RULER's tasks.")
    return found


def _row(record: Record) -> Row:
    return Row(model="", **record["row"])


def _statistic(record: Record) -> Statistic:
    return Statistic.of(_row(record), [(document, [value, 1.0]) for document, value in record["samples"]])


def _plain(row: Row) -> dict[str, Any]:
    return {name: value for name, value in asdict(row).items() if value is not None and name != "model"} | {
        "value": row.value
    }


@lru_cache(maxsize=1)
def _loads(settings: EvaluationSettings, tokenizer: Any) -> list[TaskLoad]:
    with tempfile.TemporaryDirectory() as folder:
        # RULER takes its tokenizer by name; so it gets the model's own, wherever that is from.
        tokenizer.save_pretrained(folder)
        return load_tasks(settings, folder)


def _requests(settings: EvaluationSettings, load: TaskLoad) -> list[Any]:
    """All requests of the tasks, each repeated as often as it is asked."""
    found: list[Any] = []
    for task in load.tasks.values():
        task.build_all_requests(limit=settings.samples, rank=0, world_size=1)
        found += [request for request in task.instances for _ in range(request.repeats)]
        # The examples of prompts are drawn again when it runs.
        task.set_fewshot_seed(seed=settings.seed)
    return found


def _scored(settings: EvaluationSettings, load: TaskLoad, reader: Any) -> Mapping[str, Any]:
    from lm_eval.evaluator import evaluate

    seed_everything(settings.seed)
    found = evaluate(lm=reader, task_dict=load.loaded, limit=settings.samples, bootstrap_iters=0)
    assert found is not None
    return found


def _task_numbers(
    load: TaskLoad, found: Mapping[str, Any], cut: set[tuple[str, int]]
) -> Iterator[tuple[Row, list[tuple[str, float]] | None]]:
    """The scores of the tasks, each with those of its samples (document, score) if it is their mean."""
    for task, every in found["samples"].items():
        for metric, kind, value in _scores(load, found["results"][task]):
            samples = [sample for sample in every if sample["filter"] == kind]
            row = Row(
                model="",
                task=task,
                metric=_named(load, metric, kind),
                value=value,
                unit="score",
                length=load.length,
                version=_version(found["versions"].get(task)),
                n=len(samples),
                truncated=sum((task, sample["doc_id"]) in cut for sample in samples),
            )
            values = [sample.get(metric) for sample in samples]
            if (
                not values
                or not all(isinstance(each, int | float) for each in values)
                or abs(fmean(values) - value) > 1e-9
            ):
                yield row, None
            else:
                unit = "share" if all(0 <= each <= 1 for each in values) else "score"
                scores = [(str(sample["doc_id"]), float(sample[metric])) for sample in samples]
                yield replace(row, unit=unit), scores


def _scores(load: TaskLoad, scores: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Metric, filter and value of what are scores among the values of a task or group."""
    found: list[tuple[str, str, float]] = []
    for name, value in scores.items():
        metric, _, kind = name.partition(",")
        if not kind or metric.endswith("_stderr") or not isinstance(value, int | float):
            continue
        # RULER's tasks have a score for each length, -1 for the lengths of other loads.
        if not load.ruler or metric == str(load.length):
            found.append((metric, kind, float(value)))
    return found


def _named(load: TaskLoad, metric: str, kind: str) -> str:
    name = RULER_METRIC if load.ruler else metric
    return name if kind == "none" else f"{name} ({kind})"


def _group_rows(load: TaskLoad, found: Mapping[str, Any], rows: Sequence[Row], group: str) -> list[Row]:
    """lm-eval's averages of a group. It averages RULER at 4096 tokens only; here that is the mean over tasks."""
    names = {task.task_name for task in load.loaded["groups"][group].get_all_tasks()}
    own = [row for row in rows if row.task in names]
    averages = {
        _named(load, metric, kind): value for metric, kind, value in _scores(load, found["results"][group])
    }
    if load.ruler:
        averages = {RULER_METRIC: fmean(row.value for row in own if row.value is not None)}
    made: list[Row] = []
    for metric, value in averages.items():
        of = [row for row in own if row.metric == metric]
        made.append(
            Row(
                model="",
                task=group,
                metric=metric,
                value=value,
                unit="share" if all(row.unit == "share" for row in of) else "score",
                length=load.length,
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


def _described(known: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "version": found["versions"].get(name),
            "data_set": config.get("dataset_path"),
            "config": config.get("dataset_name"),
            "questions": found["n-samples"][name]["effective"] + known.get(name, {}).get("questions", 0),
        }
        for name, config in found["configs"].items()
    }


@contextlib.contextmanager
def _surroundings(settings: EvaluationSettings) -> Iterator[None]:
    with _quiet(), _working_in(settings.data), contextlib.redirect_stdout(sys.stderr):
        yield


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without lm-eval's warnings and its dozens of lines about each task."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _working_in(folder: str | None) -> Iterator[None]:
    if folder is None:
        yield
        return
    if not Path(folder).is_dir():
        raise MissingError(f"there is no folder {folder}", expected="data sets in the hub's layout")
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
