"""A measurement as one call: settings in; numbers, and if wanted a run folder, out.

`run_job(MisalignmentJob(model="smollm2-135m", lengths=(512, 1024)), out="runs/m")` is what
`lengthwise measure` does. The settings go into the folder's `config.yaml`; what only decides how they are
run (batch size) does too, so that the file repeats the run.
"""

from __future__ import annotations

import abc
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lengthwise.errors import Interrupted, UsageError, nearest
from lengthwise.measure.estimators import ESTIMATORS
from lengthwise.measure.limit import (
    MOST_REFERENCE,
    SHARE,
    TOLERANCE,
    check_limit_levels,
    check_reference,
    default_length,
    measure_limit,
)
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.misalignment import DEFAULT_VIEWS, SHORTEST, measure_misalignment, window_length
from lengthwise.measure.perplexity import perplexity_by_length
from lengthwise.measure.recall import measure_recall
from lengthwise.measure.running import check_count, check_sizes
from lengthwise.models import load
from lengthwise.results import Results
from lengthwise.runs import RunFolder
from lengthwise.text import load_corpus, tokenize

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog
    from lengthwise.text import Bos, Corpus, Split, TokenDocuments


@dataclass(frozen=True)
class Part:
    """One kind of sample of a job: what it costs."""

    what: str
    samples: int
    """How many are asked for."""
    stretch: int
    """Tokens of text that one needs."""
    tokens: int
    """Tokens that the model reads for one."""
    longest: int
    """Tokens in its longest input."""


@dataclass(frozen=True, kw_only=True)
class Job(abc.ABC):
    """What all measurements need: a model, a text, and how to run it."""

    kind: ClassVar[str]
    """The verb."""

    model: str
    """What `lengthwise.models.load` takes."""
    adapter: str | None = None
    """A PEFT adapter on top."""
    dtype: str = "auto"
    device: str = "auto"
    text: str = "books"
    """What `lengthwise.text.load_corpus` takes."""
    split: Split = "test"
    bos: Bos = "auto"
    """Whether every view begins with BOS; auto does as the tokenizer does."""
    seed: int = 0
    """Of the windows."""
    batch_size: int = 1
    """Windows at a time. Does not change the numbers beyond rounding."""

    @abc.abstractmethod
    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it. `documents` is the corpus in the model's tokens."""

    @abc.abstractmethod
    def parts(self) -> list[Part]:
        """Its samples and what they cost."""

    def with_trained_length(self, trained: int | None) -> Job:
        """The job with what it takes from a model's configuration filled in, for planning."""
        return self

    def settings(self) -> dict[str, Any]:
        """Plain values, as they go into YAML and come back equal."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }

    def _check(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("seed", self.seed, least=0)


@dataclass(frozen=True, kw_only=True)
class MisalignmentJob(Job):
    """`lengthwise.measure.measure_misalignment` of a model by name on a text by name."""

    kind = "measure"

    lengths: tuple[int, ...] = (256, 512, 1024)
    windows: int = 16
    """Windows at each length."""
    estimator: str = "lattice"

    def __post_init__(self) -> None:
        self._check()
        check_sizes("length", self.lengths, least=SHORTEST)
        check_count("windows", self.windows)
        if self.estimator not in ESTIMATORS:
            raise UsageError(
                f"unknown estimator {self.estimator!r}", expected=nearest(self.estimator, ESTIMATORS)
            )

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
        return measure_misalignment(
            model,
            documents,
            lengths=self.lengths,
            windows=self.windows,
            estimator=self.estimator,
            bos=self.bos,
            seed=self.seed,
            batch_size=self.batch_size,
            log=log,
        )

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""

        def cost(length: int) -> int:
            # The paper's two suffixes are three quarters of L on average.
            return DEFAULT_VIEWS * length if self.estimator == "lattice" else 3 * length // 2

        return [
            Part(f"windows, L = {length}", self.windows, window_length(length), cost(length), length)
            for length in self.lengths
        ]


@dataclass(frozen=True, kw_only=True)
class PerplexityJob(Job):
    """`lengthwise.measure.perplexity_by_length` of a model by name on a text by name."""

    kind = "ppl"

    lengths: tuple[int, ...] = (256, 512, 1024)
    segments: int = 32
    """Segments of the greatest length."""

    def __post_init__(self) -> None:
        self._check()
        check_sizes("length", self.lengths, least=2)
        check_count("segments", self.segments)

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
        return perplexity_by_length(
            model,
            documents,
            lengths=self.lengths,
            segments=self.segments,
            bos=self.bos,
            seed=self.seed,
            batch_size=self.batch_size,
            log=log,
        )

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""
        longest = max(self.lengths)
        return [Part("segments", self.segments, longest + 1, longest * len(self.lengths), longest)]


@dataclass(frozen=True, kw_only=True)
class RecallJob(Job):
    """`lengthwise.measure.measure_recall` of a model by name on a text by name."""

    kind = "recall"

    distances: tuple[int, ...] = (64, 128, 256, 512)
    passage: int = 64
    """Tokens in the repeated passage."""
    scored: int = 48
    """Tokens at its end whose loss counts."""
    pairs: int = 32
    """Pairs of passages at each distance."""

    def __post_init__(self) -> None:
        self._check()
        check_sizes("distance", self.distances, least=1)
        check_count("pairs", self.pairs)

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
        return measure_recall(
            model,
            documents,
            distances=self.distances,
            passage=self.passage,
            scored=self.scored,
            pairs=self.pairs,
            bos=self.bos,
            seed=self.seed,
            batch_size=self.batch_size,
            log=log,
        )

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""
        inputs = [distance + self.passage - 1 for distance in self.distances]
        stretch = max(self.distances) + 3 * self.passage
        return [Part("pairs of passages", self.pairs, stretch, 2 * sum(inputs), max(inputs))]


@dataclass(frozen=True, kw_only=True)
class LimitJob(Job):
    """`lengthwise.measure.measure_limit` of a model by name on a text by name."""

    kind = "limit"

    length: int | None = None
    """The longest context looked at; None is 16384, or eight times the trained length if that is less."""
    reference: int | None = None
    """A length that the model was trained for; None takes one from its configuration."""
    windows: int = 8
    tolerance: float = TOLERANCE
    share: float = SHARE
    passage: int = 64
    scored: int = 48

    def __post_init__(self) -> None:
        self._check()
        if self.length is not None:
            check_count("max_length", self.length)
        check_count("windows", self.windows)
        check_limit_levels(tolerance=self.tolerance, share=self.share)
        if self.reference is not None:
            check_reference(self.reference)

    def measure_text(
        self, model: LoadedModel, corpus: Corpus, documents: TokenDocuments, log: SampleLog | None
    ) -> Measurement:
        """Run it."""
        return measure_limit(
            model,
            documents,
            length=self.length,
            reference=self.reference,
            windows=self.windows,
            tolerance=self.tolerance,
            share=self.share,
            passage=self.passage,
            scored=self.scored,
            bos=self.bos,
            seed=self.seed,
            batch_size=self.batch_size,
            log=log,
        )

    def parts(self) -> list[Part]:
        """Its samples and what they cost."""
        length, reference = self.length or default_length(None), self.reference or MOST_REFERENCE
        # Read twice, and once more in short contexts that overlap by half; the questions are few.
        tokens = 2 * length + 2 * max(0, length - reference)
        return [Part("windows", self.windows, length + 1 + 2 * self.passage, tokens, reference)]

    def with_trained_length(self, trained: int | None) -> Job:
        """With the longest context that `measure_limit` would look at."""
        return self if self.length else replace(self, length=default_length(trained))


def run_job(
    job: Job, *, out: Path | str | None = None, resume: bool = False, overwrite: bool = False
) -> Results:
    """Load the text and the model, measure, and write the run folder if `out` names one.

    A finished run is read, not repeated, with `resume`. Without `out` nothing is written.

    Raises:
        UsageError, MissingError, LengthwiseError: as `load`, `load_corpus`, `RunFolder` and the measurement.
        Interrupted: stopped with Ctrl-C; its `partial` is the `Results` of the samples that were finished,
            which `out` holds too.
    """
    if out is None:
        if resume or overwrite:
            raise UsageError("--resume and --overwrite are about an earlier run's folder", fix="add --out")
        return _run(job, None)
    with RunFolder(out, kind=job.kind, config=job.settings(), resume=resume, overwrite=overwrite) as folder:
        return folder.read_results() if folder.finished else _run(job, folder)


def _run(job: Job, folder: RunFolder | None) -> Results:
    corpus = load_corpus(job.text, split=job.split)
    model = load(job.model, dtype=job.dtype, device=job.device, adapter=job.adapter)
    documents = tokenize(corpus, model.tokenizer)
    facts = {
        "model": model.describe(),
        "text": {
            "corpus": corpus.name,
            "split": job.split,
            "split_rule": corpus.split_rule,
            "corpus_fingerprint": documents.corpus_fingerprint,
            "tokenizer_fingerprint": documents.tokenizer_fingerprint,
            "documents": len(documents),
            "tokens": documents.total_tokens,
        },
    }
    started = time.perf_counter()

    def results(measurement: Measurement) -> Results:
        return Results(
            kind=job.kind,
            model_name=job.model,
            config=job.settings(),
            rows=measurement.rows,
            notes=measurement.notes,
            partial=measurement.partial,
            provenance={
                **facts,
                "measurement": dict(measurement.settings),
                "seconds": round(time.perf_counter() - started, 3),
            },
        )

    def keep(found: Results) -> Results:
        if folder is not None:
            folder.write_results(found)
        return found

    log = None if folder is None else folder.samples
    try:
        return keep(results(job.measure_text(model, corpus, documents, log)))
    except Interrupted as stop:
        partial = keep(results(stop.partial))  # type: ignore[arg-type]
        where = f"{folder.path} keeps them" if folder else "they are not kept without --out"
        raise Interrupted(
            f"{stop.problem}; {where}", partial=partial, fix=stop.fix if folder else None
        ) from stop
