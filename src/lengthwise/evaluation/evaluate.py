"""`lengthwise eval`: its settings, one run of it, and the plan of one.

    run_eval(RunSpec(model="smollm2-135m"), EvalSpec(tasks=("babilong_qa1",), lengths=(2048,)), out="runs/e")

is what the verb does. Every finished question is in the folder's `samples.jsonl`; a run that was stopped or
killed continues from there and ends with the same results.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from annotated_types import Ge, Le, MinLen
from pydantic import model_validator

from lengthwise.errors import Interrupted, UsageError
from lengthwise.evaluation.family import ANY_TASK, Mode
from lengthwise.evaluation.prompts import Truncation
from lengthwise.evaluation.tasks import FAMILIES, resolve_tasks
from lengthwise.files import is_url
from lengthwise.models.plan import Plan
from lengthwise.processes import process_count
from lengthwise.spec import Count, Finite, Option, RunSpec, Seed, Settings, Whole

if TYPE_CHECKING:
    from lengthwise.models import Predictor
    from lengthwise.results import Results, Row
    from lengthwise.runs import RunFolder
    from lengthwise.samples import SampleLog

_BACKENDS = {"native": "own_tasks", "lm-eval": "lm_eval_backend"}
# What lm-eval's tasks take of the settings that only some tasks take.
_LM_EVAL_TAKES = frozenset({"lengths", "samples", "data", "max_length", "truncation", "seed"})
_ANY_RUN = frozenset(
    {
        "model",
        "adapter",
        "dtype",
        "device",
        "device_map",
        "tp_plan",
        "quantize",
        "served_model",
        "tokenizer",
        "tasks",
        "backend",
        "batch_size",
    }
)


class EvalSpec(Settings):
    """Does a model answer questions over long input?

    Needles, BABILong by length and depth, LongBench-E, or any task of lm-eval. No prompt is cut unless you say
    how, and every result says how many were cut.
    """

    kind: ClassVar[str] = "eval"
    examples: ClassVar[tuple[str, ...]] = (
        "lengthwise eval smollm2-135m needle_multi_key --length 2048 --length 4096",
        "lengthwise eval smollm2-135m babilong --mode likelihood --length 2048 --limit 20 --out runs/babilong",
        "lengthwise eval ./my-model longbench_e --data LongBench/data --max-length 3500 --truncation middle",
        "lengthwise eval ./my-model longbench_qasper_e --backend lm-eval --max-length 16384 --out runs/harness",
    )
    not_of_the_run: ClassVar[tuple[str, ...]] = ()

    tasks: Annotated[tuple[str, ...], MinLen(1), Option(on="argument", metavar="TASK...")]
    """Names or groups of `lengthwise ls tasks`; with --backend lm-eval, its own names."""
    backend: Literal["native", "lm-eval"] = "native"
    """Whose tasks and scorers."""
    mode: Mode = "greedy"
    """Score greedy replies, or rank the possible answers by likelihood (for small models too)."""
    lengths: Annotated[
        tuple[Annotated[Whole, Ge(64)], ...], MinLen(1), Option("--length", metavar="TOKENS")
    ] = (2048,)
    """Tokens of the whole prompt, for tasks that are made up; repeat it for several."""
    depths: Annotated[
        tuple[Annotated[Finite, Ge(0), Le(100)], ...], MinLen(1), Option("--depth", metavar="PERCENT")
    ] = (0.0, 25.0, 50.0, 75.0, 100.0)
    """Position of the answer in per cent of the context; repeat it for several."""
    samples: Annotated[Count | None, Option("--limit")] = None
    """Samples at each length and depth (default 10), or rows of a data set (default all)."""
    data: str | None = None
    """Folder of LongBench's jsonl files (default: the hub); for lm-eval, of data sets in the hub's layout."""
    stories: Annotated[str | None, Option(on="set")] = None
    """folder of bAbI's own files, for BABILong"""
    templates: Annotated[str | None, Option(on="set")] = None
    """copy of LongBench's repository, for its prompts"""
    max_length: Annotated[Annotated[Whole, Ge(2)] | None, Option(metavar="TOKENS")] = None
    """Most tokens of a data set's prompt; for lm-eval, of prompt and reply."""
    truncation: Truncation | None = None
    """How longer prompts are cut. Without it they are refused."""
    chat: Annotated[Literal["auto", "never"], Option(on="set")] = "auto"
    """auto uses the tokenizer's chat template where LongBench does"""
    seed: Seed = 0
    """Seed of what is made up."""
    batch_size: Count = 1
    """Prompts, or endings of one prompt, at a time. More needs more memory; the scores stay the same."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.depths)) < len(self.depths):
            raise UsageError(f"a depth is given twice: {self.depths}")
        self.refuse_untaken(self.model_fields_set)
        if self.backend == "lm-eval":
            if self.max_length is None:
                raise UsageError(
                    "lm-eval needs the greatest number of tokens of prompt and reply together",
                    expected="--max-length TOKENS, the context that the model is evaluated at",
                )
            return self
        tasks = resolve_tasks(self.tasks)
        without = [task.name for task in tasks if not task.ranks]
        if self.mode == "likelihood" and without:
            raise UsageError(
                f"{', '.join(without)} have no answers to rank by likelihood",
                fix="use --mode greedy for them",
            )
        for task in tasks:
            task.check(self)
        return self

    @property
    def longest_made(self) -> int:
        """Tokens in the longest prompt that is made up, known before it is made; 0 without such tasks."""
        native = self.backend == "native"
        made = native and any("lengths" in task.takes for task in resolve_tasks(self.tasks))
        return max(self.lengths) if made else 0

    def refuse_untaken(self, given: Iterable[str]) -> None:
        """Raise UsageError if `given` names a setting that no task of the run takes; None is not a setting."""
        if self.backend == "lm-eval":
            takes, who = _LM_EVAL_TAKES, "lm-eval"
        else:
            takes = ANY_TASK.union(*(task.takes for task in resolve_tasks(self.tasks)))
            who = "no task of this run"
        for name in sorted(given):
            if name in _ANY_RUN or name in takes or getattr(self, name, "") is None:
                continue
            takers = [family.name for family in FAMILIES if any(name in task.takes for task in family.tasks)]
            raise UsageError(
                f"{name} is given, and {who} {'does not take' if who == 'lm-eval' else 'takes'} it",
                expected=f"a task of {', '.join(takers)}",
                fix=f"leave {name} out",
            )

    def config(self, run: RunSpec) -> dict[str, Any]:
        """The config of a run folder."""
        loaded, own = run.settings(), self.settings()
        text = {name: loaded.pop(name) for name in ("text", "split")}
        first = {name: own.pop(name) for name in ("tasks", "backend", "mode", "lengths", "depths", "samples")}
        return {"model": run.model, "tasks": first["tasks"], **loaded, **first, **text, **own}


@dataclass(frozen=True)
class Summary:
    """The numbers of a run, finished or not."""

    rows: list[Row]
    notes: list[str]
    partial: bool


@dataclass(frozen=True)
class Evaluated:
    """What a backend gives."""

    model: Predictor
    summary: Summary
    facts: dict[str, Any]
    """For the provenance. `tasks` holds version and questions of each."""


@dataclass(frozen=True, kw_only=True)
class EvalPlan(Plan):
    """The plan of an evaluation. Numbers by task."""

    questions: dict[str, int] | None = None
    requests: dict[str, int] | None = None
    """lm-eval's requests by kind."""
    cut: dict[str, int] | None = None
    """Prompts that would be cut."""
    over_max_length: dict[str, int] | None = None
    """lm-eval's requests over the limit."""
    longest_prompt: int | None = None


def run_eval(
    run: RunSpec,
    spec: EvalSpec,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Make or read the questions, ask the model, score, and write the run folder if `out` names one.

    A finished run is read, not repeated, with `resume`. Without `out` nothing is written. The processes of torchrun
    share the questions of our own tasks, and all of them return the results.

    Raises:
        UsageError: a setting, a row of the data, or prompts over the limit without a truncation.
        MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the data.
        Interrupted: Ctrl-C; its `partial` is the `Results` of the finished questions.
    """
    from lengthwise.sharing import shared_run

    spec.refuse_untaken(run.model_fields_set)
    if spec.backend == "lm-eval" and process_count() > 1:
        raise UsageError(
            f"lm-eval in {process_count()} processes",
            expected="one process, or tasks of --backend native",
            fix="run it without torchrun",
        )
    # lm-eval works in the folder of its data.
    out = Path(out).absolute() if spec.backend == "lm-eval" and out is not None else out
    return shared_run(
        lambda folder, log: _run(run, spec, folder, log),
        out=out,
        kind=spec.kind,
        config=spec.config(run),
        resume=resume,
        overwrite=overwrite,
        split=run.tp_plan is None,
    )


def _run(run: RunSpec, spec: EvalSpec, folder: RunFolder | None, log: SampleLog) -> Results:
    from lengthwise.models import LoadedModel
    from lengthwise.models.position_limits import rope_by_input_length
    from lengthwise.results import Results
    from lengthwise.sharing import process_facts

    started = time.perf_counter()

    def keep(found: Evaluated) -> Results:
        notes = list(found.summary.notes)
        method = rope_by_input_length(found.model.config) if isinstance(found.model, LoadedModel) else None
        if method is not None:
            notes.append(
                f"The positions of {method} depend on how much is read in one pass: a shared context is read at "
                "its own length, and replies continue it, as with transformers' generate."
            )
        results = Results(
            kind=spec.kind,
            model_name=run.model,
            config=spec.config(run),
            rows=found.summary.rows,
            notes=notes,
            partial=found.summary.partial,
            provenance={
                "model": found.model.describe(),
                **found.facts,
                "seconds": round(time.perf_counter() - started, 3),
                **process_facts(),
            },
        )
        if folder is not None:
            folder.write_results(results)
        return results

    try:
        return keep(_backend(spec).evaluate(run, spec, log, folder))
    except Interrupted as stop:
        if stop.partial is None:
            raise
        partial = keep(stop.partial)  # type: ignore[arg-type]
        where = f"{folder.path} keeps the finished questions" if folder else "nothing is kept without --out"
        raise Interrupted(
            f"{stop.problem}; {where}",
            partial=partial,
            fix="run it again with --resume to continue" if folder else None,
        ) from stop


def plan_eval(run: RunSpec, spec: EvalSpec) -> Plan:
    """What the run would do and cost. Makes or reads all questions; loads the tokenizer but no weights.

    Raises:
        UsageError, MissingError: the model, the data or a setting cannot work.
    """
    from lengthwise.machine import usable_device
    from lengthwise.models.plan import SERVED_COST, check_dtype, model_skeleton, reading_cost, unknown_cost
    from lengthwise.models.position_limits import check_positions_fit, max_positions
    from lengthwise.models.resolve import check_served, read_config, read_tokenizer, resolve

    spec.refuse_untaken(run.model_fields_set)
    plan = EvalPlan(settings={"kind": spec.kind, **spec.config(run)})
    if is_url(run.model):
        endpoint = run.load()
        endpoint.check_ready(spec.longest_made)
        return _backend(spec).plan(replace(plan, cost=SERVED_COST), run, spec, endpoint.tokenizer)
    check_served(run.model, {"served_model": run.served_model, "tokenizer": run.tokenizer})
    check_dtype(run.dtype)
    usable_device(run.device)
    unknown = unknown_cost(run.model)
    if unknown is not None:
        return replace(plan, cost=unknown)
    model = resolve(run.model, weights=False)
    check_positions_fit(max_positions(model_skeleton(read_config(model))), spec.longest_made, name=run.model)
    plan = _backend(spec).plan(plan, run, spec, read_tokenizer(model))
    assert plan.tokens_to_run is not None
    assert plan.longest_prompt is not None
    cost = reading_cost(
        read_config(model),
        tokens=plan.tokens_to_run,
        at_once=spec.batch_size * plan.longest_prompt,
        longest=plan.longest_prompt,
        name=run.model,
        dtype=run.dtype,
        device=run.device,
        quantize=run.quantize,
    )
    return replace(plan, cost=cost)


def load_model(run: RunSpec, folder: RunFolder | None) -> Predictor:
    """The model of the run; UsageError if the run in `folder` was begun with another one under its name."""
    model = run.load()
    # Every process that holds a part of the weights is asked for it.
    if folder is not None or run.tp_plan is not None:
        prints = {"model": model.fingerprint()}
        if folder is not None:
            folder.check_inputs(prints)
    return model


def _backend(spec: EvalSpec) -> Any:
    """A module with `evaluate(run, spec, log, folder)` and `plan(plan, run, spec, tokenizer)`."""
    return importlib.import_module(f"lengthwise.evaluation.{_BACKENDS[spec.backend]}")
