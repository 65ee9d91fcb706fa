"""An evaluation as one call: settings in; scores, and if wanted a run folder, out.

`run_eval(EvalJob(model="smollm2-135m", tasks=("babilong_qa1",), lengths=(2048,)), out="runs/e")` is what
`lengthwise eval` does. Every finished question is in the folder's `samples.jsonl`, with its reply; a run that was
stopped or killed goes on from there and ends with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, UsageError
from lengthwise.evaluation.asking import ask
from lengthwise.evaluation.job import EvalJob
from lengthwise.evaluation.preparing import corpus_of, prepare
from lengthwise.evaluation.rows import Summary, summarise
from lengthwise.measure.running import rope_by_input_length
from lengthwise.models import load
from lengthwise.results import Results
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.text import Corpus


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
