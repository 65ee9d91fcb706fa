"""Run a measurement, or say what it would cost: load, read, score, keep, summarise. What all share is here, once.

Finished items go to the log of the run folder one by one, from where a stopped run continues. The processes of
torchrun share the batches; at the end each returns the results that rank 0 made.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, UsageError
from lengthwise.machine import is_main_process, process_count
from lengthwise.measure import given
from lengthwise.measure.measurement import Measurement, remarks_of
from lengthwise.measure.statistics import few_documents
from lengthwise.progress import TokenBar
from lengthwise.results import Results, parse_results
from lengthwise.samples import SampleLog, new_store, of_this_version, other_version, received
from lengthwise.settings import Subject
from lengthwise.subjects.reading import check_chunk
from lengthwise.text import Corpus, TokenDocuments, left_out_note, part_note

if TYPE_CHECKING:
    from lengthwise.runs import RunFolder
    from lengthwise.subjects import ModelLike
    from lengthwise.text import TextLike


_ONE_AT_A_TIME = threading.RLock()
"""Of the threads of a process: the hooks, caches and tables of positions of a model are one reading's."""


def run(
    measurement: Measurement,
    subject: Subject | ModelLike,
    text: TextLike | TokenDocuments | None = None,
    *,
    other: ModelLike | None = None,
    out: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    log: SampleLog | None = None,
) -> Results:
    """Measure a subject on a text.

    Args:
        measurement: what is measured, with its settings: `Perplexity(lengths=(512, 1024))`.
        subject: a name, path or URL, a loaded model, a pair (model, tokenizer), or how to load one (`Subject`).
        text: a name or path, a list of strings, a corpus, or the text in the model's tokens. Default: what the
            `Subject` names, "books" without one.
        other: the second model of a measurement that has one, and whose settings name none.
        out: the run folder to write; without one nothing is written.
        resume: continue the unfinished run in `out`; a finished one of the same model and text is read, not repeated.
        overwrite: replace the run in `out`.
        log: where finished items are read from and appended to, in place of a run folder.

    Raises:
        UsageError, MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the measurement; or
            something is given twice, or would not be used.
        Interrupted: Ctrl-C; its `partial` is the `Results` of the finished items, which `out` holds too.
    """
    given.check_place(out, resume=resume, overwrite=overwrite, log=log)
    spec = given.named_subject(measurement, subject, text)
    in_memory = not isinstance(subject, Subject | str | Path)
    given.check_second(measurement, spec, other, in_memory=in_memory)
    # A model that is spread over the processes needs all of them for every sample.
    loaded = (spec, given.second_subject(measurement, spec))
    spread = any(one is not None and one.tp_plan is not None for one in loaded)
    spread = spread or given.is_spread(subject) or given.is_spread(other)

    def measured(folder: RunFolder | None, log: SampleLog) -> Results:
        from lengthwise.subjects import as_model, open_model

        with _ONE_AT_A_TIME:
            files = {} if folder is None else given.files_of(measurement, spec, subject, other)
            content = given.text_of(measurement, spec, text)
            if isinstance(subject, Subject):
                model, how = open_model(spec), spec
            else:
                model, how = as_model(subject), None
            second = given.open_second(measurement, model, how) if other is None else as_model(other)
            named = text is None or isinstance(text, str | Path)
            prepared = _Prepared(measurement, spec, content, model, second, cache=named, spread=spread)
            return prepared.results(folder, log, files)

    if log is not None:
        return measured(None, log)
    store = new_store() if process_count() > 1 else None
    sharing = None if spread else store
    if store is not None and not is_main_process():
        log = SampleLog()
        log.store = sharing
        finished = received(store, "finished samples")
        if finished is not None:
            log.update(finished)
            measured(None, log)
        return parse_results(received(store, "results"))
    opened = contextlib.nullcontext()
    if out is not None:
        from lengthwise.runs import RunFolder

        config, about = given.config_of(measurement, spec), measurement.about
        how: Any = {"writes": about.folders, "resume": resume, "overwrite": overwrite}
        opened = RunFolder(out, kind=about.kind, config=config, **how)
    with opened as folder:
        log = SampleLog() if folder is None else folder.samples
        log.store = sharing
        results = None if folder is None else folder.finished
        if folder is not None and results is not None:
            prints = given.fingerprints_of(measurement, spec, subject, other, text)
            folder.check_inputs(prints, all_of_them=False)
        if store is not None:
            store.set("finished samples", json.dumps(log if results is None else None))
        results = results or measured(folder, log)
        if store is not None:
            store.set("results", results.to_json())
        return results


def check_run(
    measurement: Measurement, model: ModelLike, text: TextLike | TokenDocuments | None = None
) -> Corpus | TokenDocuments | None:
    """Refuse what `run` would refuse before it reads the first item; the text, in tokens where those are enough.

    UsageError, MissingError: as `run`.
    """
    from lengthwise.subjects import as_model

    spec = given.named_subject(measurement, model, text)
    given.check_second(measurement, spec, in_memory=True)
    corpus, first = given.text_of(measurement, spec, text), as_model(model)
    named = text is None or isinstance(text, str | Path)
    other = given.open_second(measurement, first, None)
    prepared = _Prepared(measurement, spec, corpus, first, other, cache=named)
    return corpus if measurement.reads != "tokens" else prepared.documents


def plan_run(measurement: Measurement, spec: Subject) -> dict[str, Any]:
    """What `--dry-run` shows: settings, text, items, tokens, memory and time.

    Loads the tokenizer and the text, but no weights. What needs the model's configuration is None while an embedded
    model or a .gguf file is not converted yet, what needs its tokenizer where only its shape is known. An endpoint
    is asked what it can do, with a short prompt.

    Raises:
        UsageError, MissingError: the model, the text or a setting cannot work.
    """
    from lengthwise.subjects.plan import cost_of_sides, outline, unknown_cost_of

    settings = {"kind": measurement.about.kind} | given.config_of(measurement, spec)
    given.check_second(measurement, spec)
    second = given.second_subject(measurement, spec)
    sides = [spec] if second in (None, spec) else [spec, second]
    unknown = unknown_cost_of(sides)
    content = given.text_of(measurement, spec, None)
    if unknown is not None:
        return {"settings": settings, **unknown}
    model = outline(spec)
    other = model if len(sides) == 1 else outline(sides[1], tokenizer=model.tokenizer)
    prepared = _Prepared(measurement, spec, content, model, other, cache=True)
    facts: dict[str, Any] = {}
    if (read := prepared.documents) is not None:
        facts |= {"documents": len(read), "text_tokens": read.total_tokens, "longest_document": read.longest}
    facts |= prepared.measurement.plan(prepared.items)
    cost = cost_of_sides(
        sides,
        tokens=facts["tokens_to_run"] // len(sides),
        at_once=measurement.batch_size * prepared.longest,
        longest=prepared.longest,
        cached=measurement.about.caches * prepared.longest,
        decoded=facts.get("decode_passes", 0),
    )
    return {"settings": settings, **facts, **cost}


class _Prepared:
    """A measurement with its models, its text and its items: all that is decided before the first item is read."""

    def __init__(
        self,
        measurement: Measurement,
        spec: Subject,
        text: Any,
        model: Any,
        other: Any,
        *,
        cache: bool,
        spread: bool = False,
    ) -> None:
        self.spec, self.text, self.model, self.other, self.spread = spec, text, model, other, spread
        self.models = [model] if other is model else [model, other]
        self.config = given.config_of(measurement, spec)
        self.measurement = measurement.resolved(model, other)
        self.documents, self.given_text = None, text
        if isinstance(text, Corpus):
            self.text = text = given.rendered(measurement, text, model, other)
        if text is None or measurement.reads == "questions":
            self.items = self.measurement.items(model, text, other)
        else:
            self.items, self.documents = given.items_of(self.measurement, text, model, other, cache=cache)
        given.check_items(measurement, self.items)
        self.longest = max(item.longest for item in self.items)
        self._check_models()

    @cached_property
    def _text_facts(self) -> dict[str, Any]:
        return given.text_facts(self.text, self.documents, self.items)

    def _check_models(self) -> None:
        """Raise UsageError for models that cannot read the items."""
        for each in self.models:
            each.check_ready(self.longest)
            if not self.measurement.writes:
                check_chunk(each.path.chunk or 0, min(item.longest for item in self.items))
        self.measurement.check_models(self.model, self.other, self.items)

    def results(self, folder: RunFolder | None, log: SampleLog, files: Mapping[str, Any]) -> Results:
        """Score what the log lacks, and the results of all that it then has."""
        self._check_inputs(folder, files)
        started = time.perf_counter()

        def summarised() -> Results:
            found = self._summary(log, seconds=time.perf_counter() - started)
            if folder is not None:
                folder.write_results(found)
            return found

        try:
            self._score(log)
            log.gather()
        except KeyboardInterrupt as error:
            partial = summarised()
            finished = f"{len(partial.records)} of {len(self.items)} samples"
            done = f"the measurement was interrupted after {finished}"
            where = f"{folder.path} keeps them" if folder else "they are not kept without --out"
            fix = "run it again with --resume to continue" if folder else None
            raise Interrupted(f"{done}; {where}", partial=partial, fix=fix) from error
        return summarised()

    def _check_inputs(self, folder: RunFolder | None, files: Mapping[str, Any]) -> None:
        """Refuse a run folder that was begun with other weights or another text."""
        # Every process that holds a part of the weights takes part in the fingerprint.
        if folder is None and not self.spread:
            return
        inputs = given.inputs_of(self.model, self.other, self.given_text, files)
        if folder is not None:
            folder.check_inputs(inputs)

    def _score(self, log: SampleLog) -> None:
        """Read and score, in batches, the items that the log does not hold yet.

        A batch that was logged in part is read whole again, so a resumed run rounds as an uninterrupted one.
        """
        from lengthwise.subjects import naming_bad_logits

        name = given.name_of(self.measurement, self.spec)
        for item in self.items:
            known = log.get(item.key, item.facts)
            if lost := sorted(item.facts.keys() - known.keys()):
                raise other_version(f"the samples of {name}", f"{item.key} lacks {lost[0]}")
            if any(known[fact] != value for fact, value in item.facts.items()):
                raise UsageError(
                    f"the sample log holds {item.key} of another text, tokenizer or seed",
                    fix="continue with the settings that it was begun with, or start a new log",
                )
        if known := [log[item.key] for item in self.items if item.key in log]:
            # Before hours of work that could not be summed with them.
            with of_this_version(f"the samples of {name}"):
                self.measurement.rows(self.measurement.statistics(known), known)
        done = {item.key for item in self.items if item.key in log}
        batches = self.measurement.batches(self.items)
        share = log.share([batch for batch in batches if any(item.key not in done for item in batch)])
        left = {item.key: item.tokens for batch in share for item in batch}
        read = sum(item.tokens for item in self.items if item.key in done.difference(left))
        sizes = {"total": read + sum(left.values()), "read": read}
        kind = self.measurement.about.kind
        with TokenBar(kind, **sizes, items=len(done.union(left)), finished=len(done)) as bar:
            for batch in share:
                with bar.reading(sum(item.tokens for item in batch)):
                    records = iter(self.measurement.score(self.model, batch, self.other))
                    for item in batch:
                        with naming_bad_logits(self.model, item.words or item.key):
                            record = next(records)
                        if item.key not in log:
                            log.append(item.key, {**item.facts, **record})
                            bar.finish()

    def _summary(self, log: SampleLog, *, seconds: float) -> Results:
        """The results of the items that the log has."""
        measurement, model, other, items = self.measurement, self.model, self.other, self.items
        records = {item.key: log[item.key] for item in items if item.key in log}
        statistics = measurement.statistics(list(records.values()))
        rows = measurement.rows(statistics, list(records.values()))
        for each in self.models:
            each.check_unchanged()
        text, name = self._text_facts, given.name_of(measurement, self.spec)
        about = model.describe()
        remarks = [*remarks_of(about), *([] if other is model else remarks_of(other.describe()))]
        found = Results(
            kind=measurement.about.kind,
            model_name=name,
            config=self.config,
            rows=[replace(row, model=name) for row in rows],
            partial=len(records) < len(items),
            provenance={
                "model": about,
                "text": text or None,
                "measurement": measurement.facts(model, other),
                **measurement.describe(items, records),
                "seconds": round(seconds, 3),
                **({"processes": process_count()} if process_count() > 1 else {}),
            },
            records=records,
        )
        units = {name for statistic in statistics for name in statistic.documents}
        found.notes = [
            *measurement.notes(model, other, items, found),
            *few_documents(len(units), measurement.about.units),
            *(left_out_note(text["left_out"], text["documents"]) if text else []),
            *part_note(self.documents),
            # Of two sides with one model once.
            *dict.fromkeys(remarks),
        ]
        return found
