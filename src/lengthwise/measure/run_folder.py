"""Measurements and their run folders: make one, read one again, or read its rows for a correlation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lengthwise.errors import Interrupted, UsageError
from lengthwise.files import named_path
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.sharing import process_facts, shared_run
from lengthwise.text import left_out_note, load_corpus, tokenize

if TYPE_CHECKING:
    from lengthwise.measure.correlation import Correlation
    from lengthwise.measure.measurement import Measurement
    from lengthwise.spec import RunSpec, Spec


def run_measurement(
    run: RunSpec,
    spec: Spec,
    *,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Load the text and the model, measure, and write the run folder if `out` names one.

        run_measurement(RunSpec(model="smollm2-135m"), RecallSpec(pairs=64), out="runs/recall")

    is what `lengthwise recall` does. A finished run is read, not repeated, with `resume`. The processes of torchrun
    share the samples, and all of them return the results.

    Raises:
        UsageError, MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the measurement.
        Interrupted: Ctrl-C; its `partial` is the `Results` of the finished samples, which `out` holds too.
    """
    return shared_run(
        lambda folder, log: _run(run, spec, folder, log),
        out=out,
        kind=spec.kind,
        config=spec.config(run),
        resume=resume,
        overwrite=overwrite,
        split=run.tp_plan is None,
    )


def read_measurement(path: Path) -> tuple[str, Measurement]:
    """The kind of the run at `path`, and its measurement.

    Raises:
        UsageError: no finished run, one without its samples, or of a kind that has no items to pair.
    """
    results = _results(path)
    if results.kind not in MEASUREMENTS:
        raise UsageError(
            f"{path} is a run of {results.kind!r}, which has no items to pair",
            expected=f"runs of {', '.join(MEASUREMENTS)}",
        )
    if results.partial:
        raise UsageError(f"the run in {path} is not finished", fix="finish it with --resume")
    log = SampleLog(path / "samples.jsonl")
    if not len(log):
        raise UsageError(
            f"{path} has no samples.jsonl, or an empty one: there are no items to pair",
            expected="the whole run folder; results.json alone does not suffice",
        )
    entry = MEASUREMENTS[results.kind]
    return results.kind, entry.load(entry.read)(results, log)


def measurement_of(results: Results, log: SampleLog) -> Measurement:
    """The measurement of a finished run, made again from its samples."""
    entry = MEASUREMENTS[results.kind]
    settings = entry.load(entry.settings)
    # Earlier versions recorded derived settings too, which are derived again.
    stored = results.provenance["measurement"]
    known = {name: value for name, value in stored.items() if name in settings.model_fields}
    summarise = entry.load("summarise")
    return log.summarised(lambda samples: summarise(samples, settings(**known), results.model_name))


def correlate_runs(
    paths: Sequence[Path], metric: str, score: str
) -> tuple[list[tuple[str, float, float]], Correlation]:
    """`correlate_rows` of the rows in run folders; the runs of one model are pooled by its name.

    Raises:
        UsageError: as `correlate_rows`; a folder without results.
    """
    from lengthwise.measure.correlation import correlate_rows

    runs: dict[str, list[Row]] = {}
    for path in paths:
        results = _results(named_path(path, what="the run"))
        adapter = results.config.get("adapter")
        name = f"{results.model_name} with {adapter}" if adapter else results.model_name
        runs.setdefault(name, []).extend(results.rows)
    return correlate_rows(runs, metric, score)


def _run(run: RunSpec, spec: Spec, folder: RunFolder | None, log: SampleLog) -> Results:
    entry = MEASUREMENTS[spec.kind]
    measure = entry.load(entry.function)
    corpus = load_corpus(run.text, split=run.split)
    model = spec.model(run)
    documents = tokenize(corpus, model.tokenizer)
    kinds = spec.for_model(model.trained_length).samples()
    left_out = {**corpus.left_out, **documents.left_out(kind.stretch for kind in kinds)}
    text = {
        "corpus": corpus.name,
        "split": run.split,
        "split_rule": corpus.split_rule,
        "corpus_fingerprint": documents.corpus_fingerprint,
        "tokenizer_fingerprint": documents.tokenizer_fingerprint,
        "documents": len(documents),
        "tokens": documents.total_tokens,
        "left_out": left_out,
    }
    others = spec.others(run, model)
    # Every process that holds a part of the weights is asked for it.
    if folder is not None or run.tp_plan is not None:
        prints = {"model": model.fingerprint(), "text": {"corpus": documents.corpus_fingerprint}}
        # A second model decides samples too.
        prints |= {name: other.fingerprint() for name, other in others.items() if other is not model}
        if folder is not None:
            folder.check_inputs(prints)
    started = time.perf_counter()

    def keep(measurement: Measurement) -> Results:
        results = Results(
            kind=spec.kind,
            model_name=run.model,
            config=spec.config(run),
            rows=measurement.rows,
            notes=measurement.notes + left_out_note(left_out, len(documents)),
            partial=measurement.partial,
            provenance={
                "model": model.describe(),
                "text": text,
                "measurement": dict(measurement.settings),
                "seconds": round(time.perf_counter() - started, 3),
                **process_facts(),
            },
        )
        if folder is not None:
            folder.write_results(results)
        return results

    measured = corpus if spec.reads_characters else documents
    try:
        return keep(measure(model, measured, spec, log=log, **others))
    except Interrupted as stop:
        partial = keep(stop.partial)  # type: ignore[arg-type]
        where = f"{folder.path} keeps them" if folder else "they are not kept without --out"
        raise Interrupted(
            f"{stop.problem}; {where}", partial=partial, fix=stop.fix if folder else None
        ) from stop


def _results(path: Path) -> Results:
    file = path / "results.json"
    if not file.is_file():
        raise UsageError(
            f"{path} has no results" if path.is_dir() else f"there is no folder {path}",
            expected="the --out folder of a finished run",
        )
    return read_results(file)
