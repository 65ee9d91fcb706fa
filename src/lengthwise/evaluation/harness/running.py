"""Running lm-eval's tasks, or planning to.

`max_length` is handed over, because lm-eval would otherwise read the trained length from the configuration and
cut every longer prompt to it. Prompts over the limit are refused unless a truncation is chosen, before the model
is asked anything, and counted if one is: left is lm-eval's own, middle keeps both ends of prompts that are to be
answered. Every finished request is logged, so that a stopped run goes on.

Local copies of data sets: with `data` lm-eval runs in that folder, where a data set `owner/name` is the folder
of that name in the hub's layout; task files (YAML) in it are known by name too.
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, MissingError, UsageError
from lengthwise.evaluation.harness.model import logged_model
from lengthwise.evaluation.harness.requests import Limits
from lengthwise.evaluation.harness.rows import part_rows
from lengthwise.evaluation.harness.tasks import Part, load_parts, seed_everything
from lengthwise.evaluation.rows import Summary
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog


def run_harness(job: EvalJob, model: LoadedModel, log: SampleLog) -> tuple[Summary, dict[str, Any]]:
    """Run lm-eval's tasks; the summary, and what the provenance records.

    Raises:
        MissingError: lm-eval is not installed, or a data set cannot be had.
        UsageError: no `max_length`, an unknown task, prompts over the limit without a truncation.
        Interrupted: Ctrl-C; finished requests are in `log`.
    """
    rows: list[Row] = []
    tasks: dict[str, Any] = {}
    prompts, cut = 0, 0
    try:
        with _surroundings(job):
            parts = _parts(job, model.tokenizer)
            limits = [_limits(job, model.tokenizer) for _ in parts]
            for part, limit in zip(parts, limits, strict=True):
                limit.note(_requests(job, part))
            for part, limit in zip(parts, limits, strict=True):
                found = _evaluated(job, part, logged_model(job, model, log, limit))
                rows += part_rows(job, part, found, limit.cuts, log)
                tasks |= _described(tasks, part, found)
                prompts += len(limit.cuts)
                cut += sum(tokens > 0 for tokens in limit.cuts.values())
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"the evaluation was interrupted after {len(log)} requests",
            fix="run it again with --resume to continue, if it has an --out",
        ) from error
    facts = {"tasks": tasks, "lm_eval": importlib.import_module("lm_eval").__version__}
    return Summary(rows, _notes(job, parts, prompts, cut), partial=False), facts


def plan_harness(job: EvalJob, tokenizer: Any) -> dict[str, Any]:
    """Requests by kind and task, their tokens, and how many are over the limit; plain values.

    Raises:
        MissingError, UsageError: as `run_harness`, but prompts over the limit are counted.
    """
    tasks: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    over: Counter[str] = Counter()
    longest, tokens = 0, 0
    with _surroundings(job):
        limits = _limits(job, tokenizer)
        for part in _parts(job, tokenizer):
            for request in _requests(job, part):
                size = limits.size(request)
                tasks[request.task_name] += 1
                kinds[request.request_type] += 1
                over[request.task_name] += size.over > 0
                longest = max(longest, size.prompt)
                tokens += size.prompt + size.reply - size.over
    return {
        "questions": dict(tasks),
        "requests": dict(kinds),
        "over_max_length": dict(over),
        "longest_prompt": longest,
        "tokens_to_run": tokens,
    }


def _limits(job: EvalJob, tokenizer: Any) -> Limits:
    assert job.max_length is not None
    return Limits(tokenizer, max_length=job.max_length, truncation=job.truncation)


def _parts(job: EvalJob, tokenizer: Any) -> list[Part]:
    with tempfile.TemporaryDirectory() as folder:
        # RULER takes its tokenizer by name; so it gets the model's own, wherever that is from.
        tokenizer.save_pretrained(folder)
        return load_parts(job, folder)


def _requests(job: EvalJob, part: Part) -> list[Any]:
    """All requests of a part, each as often as it is to be answered."""
    found: list[Any] = []
    for task in part.tasks.values():
        task.build_all_requests(limit=job.samples, rank=0, world_size=1)
        found += [request for request in task.instances for _ in range(request.repeats)]
        # The examples of prompts are drawn again when it runs.
        task.set_fewshot_seed(seed=job.seed)
    return found


def _evaluated(job: EvalJob, part: Part, reader: Any) -> Mapping[str, Any]:
    from lm_eval.evaluator import evaluate

    seed_everything(job.seed)
    found = evaluate(lm=reader, task_dict=part.loaded, limit=job.samples, bootstrap_iters=0)
    assert found is not None
    return found


def _described(known: Mapping[str, Any], part: Part, found: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: {
            "version": found["versions"].get(name),
            "data_set": config.get("dataset_path"),
            "config": config.get("dataset_name"),
            "questions": found["n-samples"][name]["effective"] + known.get(name, {}).get("questions", 0),
        }
        for name, config in found["configs"].items()
    }


def _notes(job: EvalJob, parts: list[Part], prompts: int, cut: int) -> list[str]:
    notes = [
        f"Tasks, prompts and scores are lm-eval's, with max_length {job.max_length} and without a chat template."
    ]
    if cut:
        where = "in the middle" if job.truncation == "middle" else "at the beginning"
        notes.append(f"{cut} of {prompts} prompts were cut {where} to fit into {job.max_length} tokens.")
    if job.samples is not None:
        each = " at each length" if any(part.length for part in parts) else ""
        notes.append(f"Of each task only the first {job.samples} samples{each} were asked.")
    if any(part.ruler and part.loaded["groups"] for part in parts):
        notes.append("ruler is the plain mean over RULER's tasks.")
    return notes


@contextlib.contextmanager
def _surroundings(job: EvalJob) -> Iterator[None]:
    if job.max_length is None:
        raise UsageError(
            "lm-eval needs the tokens of prompt and reply together at most",
            expected="--max-length TOKENS, the context that the model is to be evaluated at",
        )
    with _quiet(), _working_in(job.data), contextlib.redirect_stdout(sys.stderr):
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
