"""lm-eval as a backend: its tasks and scorers on our model, its limits made explicit, its results in our schema.

`max_length` is handed over, because lm-eval would otherwise read the trained length from the configuration and
cut every longer prompt to it. Prompts over the limit are refused unless a truncation is chosen, and counted if
one is: left is lm-eval's own, middle keeps both ends of prompts that are to be answered. Every finished request
is logged, so that a stopped run goes on.

Local copies of data sets: with `data` lm-eval runs in that folder, where a data set `owner/name` is the folder
of that name in the hub's layout; task files (YAML) in it are known by name too.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, LengthwiseError, MissingError, UsageError
from lengthwise.evaluation.prompts import OverLimit, fit, refuse_over_limit
from lengthwise.evaluation.rows import Summary
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.results import Row

if TYPE_CHECKING:
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog

_INSTALL = "pip install 'lengthwise[lm-eval]'"


def run_harness(job: EvalJob, model: LoadedModel, log: SampleLog) -> tuple[Summary, dict[str, Any]]:
    """Run lm-eval's tasks; the summary, and what the provenance records.

    Raises:
        MissingError: lm-eval is not installed, or a data set cannot be had.
        UsageError: no `max_length`, an unknown task, prompts over the limit without a truncation.
        Interrupted: Ctrl-C; finished requests are in `log`.
    """
    if job.max_length is None:
        raise UsageError(
            "lm-eval needs the tokens of prompt and reply together at most",
            expected="--max-length TOKENS, the context that the model is to be evaluated at",
        )
    if importlib.util.find_spec("lm_eval") is None:
        raise MissingError("the package lm-eval is not installed", fix=_INSTALL)
    with _quiet(), _working_in(job.data), contextlib.redirect_stdout(sys.stderr):
        found, cuts = _evaluated(job, model, log)
    rows = _rows(job, found, cuts)
    cut = sum(tokens > 0 for tokens in cuts.values())
    notes = [f"Tasks, prompts and scores are lm-eval's, with max_length {job.max_length}."]
    if cut:
        where = "in the middle" if job.truncation == "middle" else "at the beginning"
        notes.append(f"{cut} of {len(cuts)} prompts were cut {where} to fit into {job.max_length} tokens.")
    if job.samples is not None:
        notes.append(f"Of each task only the first {job.samples} samples were asked.")
    facts = {
        "tasks": {
            name: {
                "version": found["versions"].get(name),
                "data_set": config.get("dataset_path"),
                "config": config.get("dataset_name"),
                "questions": found["n-samples"][name]["effective"],
            }
            for name, config in found["configs"].items()
        },
        "lm_eval": importlib.import_module("lm_eval").__version__,
    }
    return Summary(rows, notes, partial=False), facts


def _evaluated(
    job: EvalJob, model: LoadedModel, log: SampleLog
) -> tuple[dict[str, Any], dict[tuple[str, int], int]]:
    from lm_eval.evaluator import simple_evaluate

    names = model.source.partition("@")[0]
    metadata = {"tokenizer": names, "pretrained": names, "max_seq_lengths": _sequence_lengths(job)}
    manager = _task_manager(None if job.data is None else os.getcwd(), json.dumps(metadata))
    unknown = [name for name in job.tasks if not manager.match_tasks([name])]
    if unknown:
        raise UsageError(f"lm-eval has no task {unknown[0]!r}", fix="lm_eval ls tasks shows its names")
    reader = _logged_model(job, model, log)
    try:
        found = simple_evaluate(
            model=reader,
            tasks=list(job.tasks),
            task_manager=manager,
            limit=job.samples,
            bootstrap_iters=0,
            random_seed=job.seed,
            numpy_random_seed=job.seed,
            torch_random_seed=job.seed,
            fewshot_random_seed=job.seed,
        )
    except KeyboardInterrupt as error:
        raise Interrupted(
            f"the evaluation was interrupted after {len(log)} requests",
            fix="run it again with --resume to continue, if it has an --out",
        ) from error
    except (LengthwiseError, OverLimit):
        raise
    except ImportError as error:
        raise MissingError(f"a task of lm-eval needs a package: {error}", fix=_INSTALL) from error
    except (OSError, ValueError) as error:
        raise MissingError(
            f"lm-eval cannot load its tasks or their data: {str(error).splitlines()[0]}",
            fix="on a machine without the hub: --data FOLDER with the data sets in the hub's layout",
        ) from error
    assert found is not None
    return dict(found), reader.cuts


@lru_cache(maxsize=1)
def _task_manager(folder: str | None, metadata: str) -> Any:
    """lm-eval's index of its tasks and of those in `folder`; reading its 14 thousand names takes seconds."""
    from lm_eval.tasks import TaskManager

    return TaskManager(include_path=folder, metadata=json.loads(metadata))


def _logged_model(job: EvalJob, model: LoadedModel, log: SampleLog) -> Any:
    from lm_eval.models import huggingface

    # Its decorator hides its type.
    base: Any = huggingface.HFLM

    class LoggedHFLM(base):
        """Answers from the log what is in it, counts cuts, and logs the rest as it is answered."""

        def __init__(self) -> None:
            super().__init__(
                pretrained=model.model,
                tokenizer=model.tokenizer,
                max_length=job.max_length,
                batch_size=job.batch_size,
                device=str(model.device),
            )
            self.cuts: dict[tuple[str, int], int] = {}

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            def over(context: str, settings: dict[str, Any]) -> int:
                room = self.max_length - int(settings.get("max_gen_toks", self.max_gen_toks))
                return len(self.tok_encode(context)) - room

            answer = super().generate_until
            return self._answered(requests, over, lambda some: answer(some, disable_tqdm=True), "middle")

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            def over(context: str, continuation: str) -> int:
                return len(self.tok_encode(context + continuation)) - self.max_length - 1

            answer = super().loglikelihood
            found = self._answered(requests, over, lambda some: answer(some, disable_tqdm=True), "left")
            return [(value, greedy) for value, greedy in found]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            # Its windows slide over the whole text: nothing is cut.
            answer = super().loglikelihood_rolling
            return self._answered(
                requests, lambda *_: 0, lambda some: answer(some, disable_tqdm=True), "left"
            )

        def tok_batch_encode(
            self,
            strings: Any,
            padding_side: Any = "left",
            left_truncate_len: int | None = None,
            **options: Any,
        ) -> Any:
            if job.truncation == "middle" and left_truncate_len:
                strings = [self._middle(text, left_truncate_len) for text in strings]
            return super().tok_batch_encode(
                strings, padding_side=padding_side, left_truncate_len=left_truncate_len, **options
            )

        def _middle(self, text: str, limit: int) -> str:
            kept = fit(self.tokenizer, text, limit, "middle")
            return text if not kept.cut else self.tokenizer.decode(kept.ids, skip_special_tokens=True)

        def _answered(
            self,
            requests: list[Any],
            over: Callable[..., int],
            answer: Callable[[list[Any]], list[Any]],
            side: str,
        ) -> list[Any]:
            excess = [max(0, over(*request.args)) for request in requests]
            self._check(requests, excess, side)
            open_requests: dict[str, Any] = {}
            for request, cut in zip(requests, excess, strict=True):
                place = (request.task_name, request.doc_id)
                self.cuts[place] = max(cut, self.cuts.get(place, 0))
                if _key(request) not in log:
                    open_requests.setdefault(_key(request), request)
            for some in _batches(list(open_requests.values()), job.batch_size):
                for request, reply in zip(some, answer(some), strict=True):
                    log.append(_key(request), {"task": request.task_name, "reply": reply})
            return [log[_key(request)]["reply"] for request in requests]

        def _check(self, requests: list[Any], excess: Sequence[int], side: str) -> None:
            sizes = [cut + self.max_length for cut in excess if cut]
            if not sizes:
                return
            if job.truncation is None:
                raise refuse_over_limit("lm-eval's tasks", sizes, len(requests), self.max_length)
            if job.truncation == "middle" and side == "left":
                raise UsageError(
                    f"{len(sizes)} of {len(requests)} prompts are too long, and lm-eval cuts prompts whose answers "
                    "are ranked at their beginning only",
                    fix="--truncation left, or a greater --max-length",
                )

    return LoggedHFLM()


def _key(request: Any) -> str:
    plain = json.dumps([request.request_type, request.args], sort_keys=True, default=str)
    return f"{request.request_type}/{hashlib.sha256(plain.encode()).hexdigest()[:24]}"


def _batches(requests: list[Any], size: int) -> Iterator[list[Any]]:
    """Requests of up to `size` contexts at a time: those of one context stay together, which lm-eval makes use of."""
    contexts = [list(some) for _, some in groupby(requests, key=lambda request: request.args[0])]
    contexts.sort(key=lambda some: -len(some[0].args[0]))
    for start in range(0, len(contexts), size):
        yield [request for some in contexts[start : start + size] for request in some]


def _sequence_lengths(job: EvalJob) -> Any:
    """RULER takes a list of integers, BABILong one length as its data set names it."""
    if any(name.startswith("babilong") for name in job.tasks):
        return f"{min(job.lengths) // 1000}k"
    return sorted(job.lengths)


def _rows(job: EvalJob, found: dict[str, Any], cuts: dict[tuple[str, int], int]) -> list[Row]:
    rows: list[Row] = []
    for task, scores in {**found["results"], **found.get("groups", {})}.items():
        samples = found["samples"].get(task, [])
        for name, value in scores.items():
            metric, _, kind = name.partition(",")
            if not isinstance(value, int | float) or "_stderr" in metric or not kind:
                continue
            row = Row(
                model=job.model,
                task=task,
                metric=metric if kind == "none" else f"{metric} ({kind})",
                value=float(value),
                unit="share" if 0 <= value <= 1 else "score",
                version=_version(found["versions"].get(task)),
                n=len(samples) or None,
                truncated=sum(cut > 0 for (of, _), cut in cuts.items() if of == task),
            )
            rows.append(_with_interval(row, [s for s in samples if s["filter"] == kind], metric))
    return rows


def _with_interval(row: Row, samples: Sequence[dict[str, Any]], metric: str) -> Row:
    """With our interval over samples where lm-eval's score is their mean; else as it is."""
    values = [sample.get(metric) for sample in samples]
    if not values or not all(isinstance(value, int | float) for value in values):
        return row
    records = [(str(s["doc_id"]), [float(s[metric]), 1.0]) for s in samples]
    made = estimate(Statistic.of(row, records))
    return made if made.value is not None and abs(made.value - (row.value or 0.0)) < 1e-9 else row


def _version(version: Any) -> int | None:
    try:
        return int(float(version))
    except (TypeError, ValueError):
        return None


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
