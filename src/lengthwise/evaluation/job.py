"""An evaluation as one call: settings in; scores, and if wanted a run folder, out.

`run_eval(EvalJob(model="smollm2-135m", tasks=("babilong_qa1",), lengths=(2048,)), out="runs/e")` is what
`lengthwise eval` does. Every finished question is in the folder's `samples.jsonl`, with its reply; a run that was
stopped or killed goes on from there and ends with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lengthwise.errors import Interrupted, UsageError, nearest
from lengthwise.evaluation.asking import ask
from lengthwise.evaluation.preparing import prepare
from lengthwise.evaluation.prompts import TRUNCATIONS
from lengthwise.evaluation.questions import Mode
from lengthwise.evaluation.rows import Summary, summarise
from lengthwise.evaluation.tasks import TASKS, resolve_tasks
from lengthwise.measure.running import check_count, check_sizes, rope_by_input_length
from lengthwise.models import load
from lengthwise.results import Results
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.text import load_corpus

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.text import Corpus, Split

Chat = Literal["auto", "never"]
Backend = Literal["native", "lm-eval"]
BACKENDS = ("native", "lm-eval")
# Settings that only some kinds of our own tasks take.
_TAKEN_BY = {
    "data": "longbench_e",
    "templates": "longbench_e",
    "truncation": "longbench_e",
    "stories": "babilong",
}
SAMPLES = 10
"""Samples of a made-up task at each length and depth, unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class EvalJob:
    """Everything that decides the scores, and how they are computed."""

    model: str
    """What `lengthwise.models.load` takes."""
    tasks: tuple[str, ...]
    """Names or groups of `lengthwise ls tasks`; lm-eval's own names with its backend."""
    adapter: str | None = None
    """A PEFT adapter on top."""
    dtype: str = "auto"
    device: str = "auto"
    backend: Backend = "native"
    mode: Mode = "greedy"
    """Score greedy replies, or rank given answers by likelihood."""
    lengths: tuple[int, ...] = (2048,)
    """Tokens of whole prompts, for tasks that are made up (and for RULER and BABILong of lm-eval)."""
    depths: tuple[float, ...] = (0, 25, 50, 75, 100)
    """Where the answer stands, per cent of the context, for tasks that choose it."""
    samples: int | None = None
    """Samples at each length and depth (default 10), or the first rows of a data set (default all)."""
    text: str = "books"
    """Background: what `lengthwise.text.load_corpus` takes."""
    split: Split = "test"
    data: str | None = None
    """Folder of LongBench's jsonl files (default: the hub); for lm-eval, of its data sets in the hub's layout."""
    stories: str | None = None
    """Folder of bAbI's own files; default is our own world."""
    templates: str | None = None
    """Copy of LongBench's repository, for its prompts; default is the installed lm-eval."""
    max_length: int | None = None
    """Tokens of a data set's prompt at most (lm-eval: of prompt and reply)."""
    truncation: str | None = None
    """What is done with longer prompts: middle, left; None refuses them."""
    chat: Chat = "auto"
    """auto wraps prompts in the chat template where LongBench does and the tokenizer has one."""
    seed: int = 0
    batch_size: int = 1
    """Prompts, or endings of one prompt, at a time. Does not change the scores beyond rounding."""

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, least=0)
        check_sizes("length", self.lengths, least=64)
        if self.samples is not None:
            check_count("samples", self.samples)
        if self.max_length is not None:
            check_count("max_length", self.max_length, least=2)
        for name, value, valid in (
            ("truncation", self.truncation, (*TRUNCATIONS, None)),
            ("mode", self.mode, ("greedy", "likelihood")),
            ("backend", self.backend, BACKENDS),
            ("chat", self.chat, ("auto", "never")),
        ):
            if value not in valid:
                raise UsageError(
                    f"unknown {name} {value!r}", expected=nearest(str(value), filter(None, valid))
                )
        if not self.depths or any(not 0 <= depth <= 100 for depth in self.depths):
            raise UsageError(f"depths are {self.depths}", expected="per cent of the context, 0 to 100")
        if len(set(self.depths)) < len(self.depths):
            raise UsageError(f"a depth is given twice: {self.depths}")
        if self.backend == "native":
            self._check_native()
        else:
            self._check_harness()

    def _check_native(self) -> None:
        tasks = [TASKS[name] for name in resolve_tasks(self.tasks)]
        if self.mode == "likelihood":
            without = [task.name for task in tasks if not task.ranks]
            if without:
                raise UsageError(
                    f"{', '.join(without)} have no answers to rank by likelihood",
                    fix="use --mode greedy for them",
                )
        kinds = {task.kind for task in tasks}
        for name, kind in _TAKEN_BY.items():
            if getattr(self, name) is not None and kind not in kinds:
                raise UsageError(
                    f"{name} is {getattr(self, name)!r}, and no task of this run takes it",
                    expected=f"a task of {kind}",
                    fix=f"leave {name} out",
                )
        made = [task.name for task in tasks if task.kind != "longbench_e"]
        if made and self.max_length is not None and max(self.lengths) > self.max_length:
            raise UsageError(
                f"{made[0]} is made for {max(self.lengths)} tokens, and max_length is {self.max_length}",
                fix="shorter lengths; or data sets, which max_length is for, in a run of their own",
            )
        if self.max_length is None and "longbench_e" in kinds:
            raise UsageError(
                "LongBench needs the greatest number of tokens of a prompt",
                expected="--max-length TOKENS; upstream takes 3500 for a model of 4k, and leaves room for the reply",
            )

    def _check_harness(self) -> None:
        if self.mode != "greedy":
            raise UsageError("lm-eval's tasks say themselves how they are scored", fix="leave out --mode")
        for name in ("stories", "templates"):
            if getattr(self, name) is not None:
                raise UsageError(f"lm-eval's tasks take no {name}", fix=f"leave {name} out")

    def settings(self) -> dict[str, Any]:
        """Plain values, as they go into YAML and come back equal."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }


def run_eval(
    job: EvalJob, *, out: Path | str | None = None, resume: bool = False, overwrite: bool = False
) -> Results:
    """Make or read the questions, ask the model, score, and write the run folder if `out` names one.

    A finished run is read, not repeated, with `resume`. Without `out` nothing is written.

    Raises:
        UsageError: a setting, a row of the data, prompts over the limit without a truncation.
        MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the data.
        Interrupted: stopped with Ctrl-C; its `partial` is the `Results` of the questions that were finished.
    """
    if out is None:
        if resume or overwrite:
            raise UsageError("--resume and --overwrite are about an earlier run's folder", fix="add --out")
        return _run(job, None)
    if job.backend == "lm-eval":
        # It works in another folder.
        out = Path(out).absolute()
    with RunFolder(out, kind="eval", config=job.settings(), resume=resume, overwrite=overwrite) as folder:
        return folder.read_results() if folder.finished else _run(job, folder)


def _run(job: EvalJob, folder: RunFolder | None) -> Results:
    log = SampleLog() if folder is None else folder.samples
    started = time.perf_counter()

    def results(model: LoadedModel, summary: Summary, facts: dict[str, Any]) -> Results:
        found = Results(
            kind="eval",
            model_name=job.model,
            config=job.settings(),
            rows=summary.rows,
            notes=[*summary.notes, *_rope_notes(model)],
            partial=summary.partial,
            provenance={
                "model": model.describe(),
                **facts,
                "seconds": round(time.perf_counter() - started, 3),
            },
        )
        if folder is not None:
            folder.write_results(found)
        return found

    if job.backend == "lm-eval":
        from lengthwise.evaluation.harness.running import run_harness

        model = load(job.model, dtype=job.dtype, device=job.device, adapter=job.adapter)
        return results(model, *run_harness(job, model, log))
    corpus = corpus_of(job)
    model = load(job.model, dtype=job.dtype, device=job.device, adapter=job.adapter)
    prepared = prepare(job, model.tokenizer, corpus)
    facts = {"tasks": prepared.describe(), "text": _describe(corpus, job)}

    def summary() -> Summary:
        return summarise(job, prepared, log)

    with _keeping_partial(folder, lambda: results(model, summary(), facts)):
        ask(model, prepared, log, mode=job.mode, batch_size=job.batch_size)
    return results(model, summary(), facts)


@contextmanager
def _keeping_partial(folder: RunFolder | None, partial: Callable[[], Results]) -> Iterator[None]:
    """Turn Ctrl-C inside the block into `Interrupted`, with the results of what was finished."""
    try:
        yield
    except KeyboardInterrupt as error:
        found = partial()
        found.partial = True
        where = f"{folder.path} keeps what was finished" if folder else "nothing is kept without --out"
        raise Interrupted(
            f"the evaluation was interrupted; {where}",
            partial=found,
            fix="run it again with --resume to continue" if folder else None,
        ) from error


def _rope_notes(model: LoadedModel) -> list[str]:
    method = rope_by_input_length(model)
    if method is None:
        return []
    return [
        f"The positions of {method} depend on how much is read in one pass: a context that several questions or "
        "answers share is read at its own length, replies continue it, as with transformers' generate."
    ]


def corpus_of(job: EvalJob) -> Corpus | None:
    """The background, if a task needs one."""
    made = any(TASKS[name].kind != "longbench_e" for name in resolve_tasks(job.tasks))
    return load_corpus(job.text, split=job.split) if made else None


def _describe(corpus: Corpus | None, job: EvalJob) -> dict[str, Any] | None:
    if corpus is None:
        return None
    return {
        "corpus": corpus.name,
        "split": job.split,
        "split_rule": corpus.split_rule,
        "corpus_fingerprint": corpus.fingerprint,
        "documents": len(corpus.documents),
    }
