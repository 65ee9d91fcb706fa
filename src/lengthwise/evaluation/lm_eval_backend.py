"""lm-eval's tasks as a backend of `lengthwise eval`, with its scores as rows of our schema.

`max_length` is passed on; otherwise lm-eval would read the trained length from the configuration and cut every
longer prompt to it. Prompts over the limit are refused before the model is asked anything; with a truncation they
are counted: left is lm-eval's own, middle keeps both ends of prompts with replies. Every finished request is
logged, so a stopped run continues.

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
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, MissingError
from lengthwise.evaluation.evaluate import EvalPlan, Evaluated, Summary, load_model
from lengthwise.evaluation.lm_eval_requests import Limits, Place, logged_model
from lengthwise.evaluation.lm_eval_tasks import TaskLoad, load_tasks, seed_everything
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.models import weights_of
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.evaluate import EvalSpec
    from lengthwise.runs import RunFolder
    from lengthwise.samples import SampleLog
    from lengthwise.spec import RunSpec

RULER_METRIC = "string_match"
"""lm-eval names RULER's score after the length."""


def evaluate(run: RunSpec, spec: EvalSpec, log: SampleLog, folder: RunFolder | None) -> Evaluated:
    """Run lm-eval's tasks.

    Raises:
        MissingError: lm-eval is not installed, or data cannot be loaded.
        UsageError: an unknown task, or prompts over the limit without a truncation.
        Interrupted: Ctrl-C; finished requests are in `log`.
    """
    model = weights_of(
        load_model(run, folder),
        needs="this backend asks for logits",
        fix="--backend native, or lm-eval's own local-completions",
    )
    rows: list[Row] = []
    tasks: dict[str, Any] = {}
    prompts, cut = 0, 0
    try:
        with _surroundings(spec):
            loads = _loads(spec, model.tokenizer)
            limits = [_limits(spec, model.tokenizer) for _ in loads]
            for load, limit in zip(loads, limits, strict=True):
                limit.note(_requests(spec, load))
            for load, limit in zip(loads, limits, strict=True):
                found = _scored(spec, load, logged_model(spec, model, log, limit))
                rows += _rows(run.model, load, found, limit.cuts, log)
                tasks |= _described(tasks, found)
                prompts += len(limit.cuts)
                cut += sum(tokens > 0 for tokens in limit.cuts.values())
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"the evaluation was interrupted after {len(log)} requests",
            fix="run it again with --resume to continue, if it has an --out",
        ) from error
    facts = {"tasks": tasks, "lm_eval": importlib.import_module("lm_eval").__version__}
    return Evaluated(model, Summary(rows, _notes(spec, loads, prompts, cut), partial=False), facts)


def plan(plan: EvalPlan, run: RunSpec, spec: EvalSpec, tokenizer: Any) -> EvalPlan:
    """The plan with requests by kind and task, their tokens, and how many are over the limit.

    Raises:
        MissingError, UsageError: as `evaluate`, except that prompts over the limit are counted.
    """
    tasks: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    over: Counter[str] = Counter()
    longest, tokens = 0, 0
    with _surroundings(spec):
        limits = _limits(spec, tokenizer)
        for load in _loads(spec, tokenizer):
            for request in _requests(spec, load):
                size = limits.size(request)
                tasks[request.task_name] += 1
                kinds[request.request_type] += 1
                over[request.task_name] += size.over > 0
                longest = max(longest, size.prompt)
                tokens += size.prompt + size.reply - size.over
    return replace(
        plan,
        questions=dict(tasks),
        requests=dict(kinds),
        over_max_length=dict(over),
        longest_prompt=longest,
        tokens_to_run=tokens,
    )


def _limits(spec: EvalSpec, tokenizer: Any) -> Limits:
    assert spec.max_length is not None
    return Limits(tokenizer, max_length=spec.max_length, truncation=spec.truncation)


def _loads(spec: EvalSpec, tokenizer: Any) -> list[TaskLoad]:
    with tempfile.TemporaryDirectory() as folder:
        # RULER takes its tokenizer by name; so it gets the model's own, wherever that is from.
        tokenizer.save_pretrained(folder)
        return load_tasks(spec, folder)


def _requests(spec: EvalSpec, load: TaskLoad) -> list[Any]:
    """All requests of the tasks, each repeated as often as it is asked."""
    found: list[Any] = []
    for task in load.tasks.values():
        task.build_all_requests(limit=spec.samples, rank=0, world_size=1)
        found += [request for request in task.instances for _ in range(request.repeats)]
        # The examples of prompts are drawn again when it runs.
        task.set_fewshot_seed(seed=spec.seed)
    return found


def _scored(spec: EvalSpec, load: TaskLoad, reader: Any) -> Mapping[str, Any]:
    from lm_eval.evaluator import evaluate

    seed_everything(spec.seed)
    found = evaluate(lm=reader, task_dict=load.loaded, limit=spec.samples, bootstrap_iters=0)
    assert found is not None
    return found


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


def _rows(
    model: str, load: TaskLoad, found: Mapping[str, Any], cuts: Mapping[Place, int], log: SampleLog
) -> list[Row]:
    """The scores of the tasks, then of the groups. Scores that are means go to `log` by sample."""
    rows: list[Row] = []
    for task, every in found["samples"].items():
        cut = {place for place, tokens in cuts.items() if place[0] == task and tokens}
        for metric, kind, value in _scores(load, found["results"][task]):
            samples = [sample for sample in every if sample["filter"] == kind]
            row = Row(
                model=model,
                task=task,
                metric=_named(load, metric, kind),
                value=value,
                unit="score",
                length=load.length,
                version=_version(found["versions"].get(task)),
                n=len(samples),
                truncated=sum((task, sample["doc_id"]) in cut for sample in samples),
            )
            rows.append(_as_mean(row, samples, metric, log))
    return rows + [
        row for group in load.loaded["groups"] for row in _group_rows(model, load, found, rows, group)
    ]


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


def _as_mean(row: Row, samples: Sequence[Mapping[str, Any]], metric: str, log: SampleLog) -> Row:
    """The row with our interval, if lm-eval's score is the mean over samples; their scores go to the log."""
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
            # For comparing runs: the score, and whether it is of the same question.
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
    model: str, load: TaskLoad, found: Mapping[str, Any], rows: Sequence[Row], group: str
) -> list[Row]:
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
                model=model,
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


def _notes(spec: EvalSpec, loads: list[TaskLoad], prompts: int, cut: int) -> list[str]:
    notes = [
        f"Tasks, prompts and scores are lm-eval's, with max_length {spec.max_length} and without a chat template."
    ]
    if cut:
        where = "in the middle" if spec.truncation == "middle" else "at the beginning"
        notes.append(f"{cut} of {prompts} prompts were cut {where} to fit into {spec.max_length} tokens.")
    if spec.samples is not None:
        each = " at each length" if any(load.length for load in loads) else ""
        notes.append(f"Each task has only its first {spec.samples} samples{each}.")
    if any(load.ruler and load.loaded["groups"] for load in loads):
        notes.append("ruler is the plain mean over RULER's tasks.")
    return notes


@contextlib.contextmanager
def _surroundings(spec: EvalSpec) -> Iterator[None]:
    with _quiet(), _working_in(spec.data), contextlib.redirect_stdout(sys.stderr):
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
