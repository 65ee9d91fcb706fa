"""Run a measurement: load, read, score, keep, summarise. What all measurements share is here, once.

    run(Perplexity(lengths=(512, 1024)), "smollm2-135m", "books", out="runs/ppl")

Finished items go to the log of the run folder one by one, from where a stopped run continues. The processes of
torchrun share the batches.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import Interrupted, UsageError
from lengthwise.measure.measurement import Item, Measurement
from lengthwise.measure.statistics import few_documents
from lengthwise.progress import progress
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise.settings import Subject
from lengthwise.sharing import process_facts, shared_run
from lengthwise.text import Corpus, TokenDocuments, as_corpus, left_out_note, load_corpus, tokenize

if TYPE_CHECKING:
    from lengthwise.models import ModelLike, Reader
    from lengthwise.runs import RunFolder
    from lengthwise.text import TextLike


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
        other: the second model of a measurement that has one, in place of what its settings name.
        out: the run folder to write; without one nothing is written.
        resume: continue the unfinished run in `out`; a finished one is read, not repeated.
        overwrite: replace the run in `out`.
        log: where finished items are read from and appended to without a run folder.

    Raises:
        UsageError, MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the measurement.
        Interrupted: Ctrl-C; its `partial` is the `Results` of the finished items, which `out` holds too.
    """
    spec = subject if isinstance(subject, Subject) else _subject_of(subject, text)

    def measured(folder: RunFolder | None, log: SampleLog) -> Results:
        return _Run(measurement, subject, spec, text, other).results(folder, log)

    if log is not None:
        return measured(None, log)
    return shared_run(
        measured,
        out=out,
        kind=measurement.kind,
        config=measurement.config(spec),
        resume=resume,
        overwrite=overwrite,
        split=spec.tp_plan is None,
    )


class _Run:
    """A measurement with loaded models and text: all that is decided before the first item is read."""

    def __init__(
        self,
        measurement: Measurement,
        subject: Subject | ModelLike,
        spec: Subject,
        text: TextLike | TokenDocuments | None,
        other: ModelLike | None,
    ) -> None:
        from lengthwise.models import as_model, open_model

        loads = isinstance(subject, Subject)
        given = as_given(text, spec) if measurement.needs_text else None
        self.name, self.split = spec.model, spec.tp_plan is None
        self.config = measurement.config(spec)
        self.model = model = open_model(measurement.check_subject(spec)) if loads else as_model(subject)
        if other is None:
            self.other = measurement.open_other(model, spec if loads else None)
        else:
            self.other = as_model(other)
        self.measurement = measurement.resolved(model, self.other)
        named = text is None or isinstance(text, str | Path)
        documents = tokens_of(measurement, given, self.other, cache=named)
        tokens = measurement.reads == "tokens"
        self.items = self.measurement.items(model, documents if tokens else given, self.other)
        for each in {id(one): one for one in (model, self.other)}.values():
            each.check_ready(max(item.longest for item in self.items))
        self.measurement.check_models(model, self.other, self.items)
        self.text = _text_facts(given, documents, self.items)

    def results(self, folder: RunFolder | None, log: SampleLog) -> Results:
        """Score what the log lacks, and the results of all that it then has."""
        self._check_inputs(folder)
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
            where = f"{folder.path} keeps them" if folder else "they are not kept without --out"
            raise Interrupted(
                f"the measurement was interrupted after {len(partial.records)} of {len(self.items)} samples; {where}",
                partial=partial,
                fix="run it again with --resume to continue" if folder else None,
            ) from error
        return summarised()

    def _check_inputs(self, folder: RunFolder | None) -> None:
        """Refuse a run folder that was begun with other weights or another text."""
        # Every process that holds a part of the weights takes part in the fingerprint.
        if folder is None and self.split:
            return
        prints = {"model": self.model.fingerprint()}
        if self.text is not None:
            prints["text"] = {"corpus": self.text["corpus_fingerprint"]}
        if self.other is not self.model:
            prints["second model"] = self.other.fingerprint()
        if folder is not None:
            folder.check_inputs(prints)

    def _score(self, log: SampleLog) -> None:
        """Read and score, in batches, the items that the log does not hold yet.

        A batch that was logged in part is read whole again, so a resumed run rounds as an uninterrupted one.
        """
        from lengthwise.models import naming_bad_logits

        for item in self.items:
            known = log.get(item.key, item.facts)
            if any(known.get(name) != value for name, value in item.facts.items()):
                raise UsageError(
                    f"the sample log holds {item.key} of another text, tokenizer or seed",
                    fix="continue with the settings that it was begun with, or start a new log",
                )
        done = {item.key for item in self.items if item.key in log}
        batches = self.measurement.batches(self.items)
        share = log.share([batch for batch in batches if any(item.key not in done for item in batch)])
        left = sum(item.key not in done for batch in share for item in batch)
        with progress((), what=self.measurement.kind, total=len(done) + left, initial=len(done)) as bar:
            for batch in share:
                records = iter(self.measurement.score(self.model, batch, self.other))
                for item in batch:
                    with naming_bad_logits(self.model, self.measurement.words(item)):
                        record = next(records)
                    if item.key not in log:
                        log.append(item.key, {**item.facts, **record})
                        bar.update()

    def _summary(self, log: SampleLog, *, seconds: float) -> Results:
        """The results of the items that the log has."""
        measurement, model, other, items = self.measurement, self.model, self.other, self.items
        records = {item.key: log[item.key] for item in items if item.key in log}
        partial = len(records) < len(items)
        if not partial:
            for key, record in measurement.finish(model, items, records).items():
                if key not in log:
                    log.append(key, record)
                records[key] = record
        finished = list(records.values())
        statistics = measurement.statistics(finished)
        found = Results(
            kind=measurement.kind,
            model_name=self.name,
            config=self.config,
            rows=[replace(row, model=self.name) for row in measurement.rows(statistics, finished)],
            partial=partial,
            provenance={
                "model": model.describe(),
                "text": self.text,
                "measurement": measurement.identity() | measurement.facts(model, other),
                **measurement.describe(items, records),
                "seconds": round(seconds, 3),
                **process_facts(),
            },
            records=records,
        )
        units = {name for statistic in statistics for name in statistic.documents}
        found.notes = [
            *measurement.notes(model, other, items, found),
            *few_documents(len(units), measurement.units),
        ]
        if self.text is not None:
            found.notes += left_out_note(self.text["left_out"], self.text["documents"])
        return found


def as_given(text: TextLike | TokenDocuments | None, spec: Subject) -> Corpus | TokenDocuments:
    """The text as a corpus, or in the model's tokens where it is given so."""
    if text is None:
        return load_corpus(spec.text, split=spec.split)
    return text if isinstance(text, TokenDocuments) else as_corpus(text, split=spec.split)


def tokens_of(
    measurement: Measurement, given: Corpus | TokenDocuments | None, model: Reader, *, cache: bool = True
) -> TokenDocuments | None:
    """The text in the model's tokens; None where the measurement reads questions."""
    if given is None or measurement.reads == "questions":
        return None
    return given if isinstance(given, TokenDocuments) else tokenize(given, model.tokenizer, cache=cache)


def _text_facts(
    given: Corpus | TokenDocuments | None, documents: TokenDocuments | None, items: Sequence[Item]
) -> dict[str, Any] | None:
    """What a result records of its text; None without one."""
    if given is None:
        return None
    facts: dict[str, Any] = {}
    left_out: dict[str, int] = {}
    if isinstance(given, Corpus):
        facts |= {
            "corpus": given.name,
            "split": given.split,
            "split_rule": given.split_rule,
            "corpus_fingerprint": given.fingerprint,
            "documents": len(given.documents),
        }
        left_out |= given.left_out
    if documents is not None:
        facts |= {
            "corpus": documents.corpus,
            "corpus_fingerprint": documents.corpus_fingerprint,
            "tokenizer_fingerprint": documents.tokenizer_fingerprint,
            "documents": len(documents),
            "tokens": documents.total_tokens,
        }
        left_out |= documents.left_out({item.stretch for item in items})
    return facts | {"left_out": left_out}


def _subject_of(model: ModelLike, text: TextLike | TokenDocuments | None) -> Subject:
    """The names of a model and a text that are given as objects."""
    from lengthwise.models import as_model

    name = str(model) if isinstance(model, str | Path) else as_model(model).name
    match text:
        case None:
            return Subject(model=name)
        case str() | Path():
            return Subject(model=name, text=str(text))
        case _:
            # Token documents, a corpus, or a list of strings.
            return Subject(model=name, text=getattr(text, "corpus", getattr(text, "name", "texts")))
