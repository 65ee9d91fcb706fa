"""LongPPL: perplexity on the tokens that need far context (Fang et al., arXiv 2410.23771, ICLR 2025).

LongPPL of a model is exp(its mean loss on the key tokens, each with all context). An evaluator finds these
(`lengthwise.measure.key_tokens`). Key tokens go from the evaluator's tokenizer to the model's by their characters:
neighbouring ones are joined, and a token of the model is key if it lies wholly inside. The number of a corpus
divides once: sum of losses over all key tokens by their number.

The samples of a run hold the texts' places and the key tokens' characters, so another model can be measured on them
without the evaluator.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge
from pydantic import model_validator

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import (
    Measurement,
    bos_note,
    check_logged,
    collect,
    few_samples_note,
)
from lengthwise.measure.statistics import Estimator, Statistic, ratio
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.spec import PYTHON_ONLY, Count, Finite, Option, RunSpec, Samples, Spec
from lengthwise.text import as_corpus, resolve_bos, sample_windows, tokenize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import ModelLike, Predictor
    from lengthwise.text import Corpus, TextLike

DISPLAY = Display(
    title="Perplexity on tokens that need far context",
    question="How well does the model predict the tokens that far context helps with?",
    metrics={
        "longppl": "exp(loss_key)",
        "loss_key": "cross entropy of the key tokens: those that far context makes likely for the evaluator",
        "perplexity": "exp(loss) of all tokens of the same texts",
        "loss": "cross entropy of all tokens",
        "key_share": "share of the model's tokens that are key",
        "jeffreys": "how much the predictions with all context and with the short one disagree",
    },
    better={"loss": "lower", "jeffreys": "lower"},
    answer="longppl_answer",
)


class LongPplSpec(Spec):
    """How well are the tokens predicted that need far context?

    LongPPL: an evaluator reads each text with all context and with a short one. The tokens that gain more than 2
    nats and are then likely are the key tokens; LongPPL is the model's perplexity on them. Only numbers with one
    evaluator on one text compare.
    """

    kind = "longppl"
    examples = (
        "lengthwise longppl smollm2-135m --max-length 4096 --short 1024",
        "lengthwise longppl ./my-model --evaluator meta-llama/Llama-3.1-8B --out runs/longppl",
        "lengthwise longppl ./other-model --key-tokens runs/longppl --out runs/other",
    )
    reads_characters = True
    beside_the_numbers = (*Spec.beside_the_numbers, "key_tokens")

    evaluator: Annotated[str | None, Option(metavar="MODEL")] = None
    """The model that finds the key tokens; its tokenizer may differ. Default: the measured model."""
    key_tokens: Annotated[str | None, Option(metavar="RUN")] = None
    """Instead of an evaluator: the key tokens of an earlier run with the same text and settings."""
    length: Annotated[Count, Option("--max-length", metavar="TOKENS")] = 8192
    """Tokens of each text (the evaluator's)."""
    short: Annotated[Count, Option(metavar="TOKENS")] = 4096
    """The short context, K."""
    stride: Annotated[Count | None, Option(metavar="TOKENS")] = None
    """Tokens by which the short windows advance: a short context is K to K + stride - 1 tokens. Default: K / 4."""
    texts: Annotated[Count, Option("--limit")] = 8
    """Texts."""
    alpha: Annotated[Finite, Ge(0), PYTHON_ONLY] = 2.0
    """Nats by which all context must lower the loss of a key token."""
    beta: Annotated[Finite, PYTHON_ONLY] = -2.0
    """A key token's loss with all context is less than minus this."""

    @property
    def advance(self) -> int:
        """The stride; by default a quarter of the short context, as the paper's 1024 of 4096."""
        return max(1, self.short // 4) if self.stride is None else self.stride

    @model_validator(mode="after")
    def _check(self) -> Self:
        longest = self.short + self.advance
        if self.length <= longest:
            raise UsageError(
                f"texts of {self.length} tokens have none whose short context, up to {longest} tokens "
                f"(short {self.short} + stride {self.advance}), leaves anything out",
                expected=f"more than {longest} tokens",
                fix="give a greater --max-length, or a smaller --short and --stride",
            )
        if self.key_tokens is not None and self.evaluator is not None:
            raise UsageError(
                "both an evaluator and the key tokens of an earlier run are given",
                fix="leave out --evaluator; or --key-tokens, to find them anew",
            )
        return self

    def samples(self) -> list[Samples]:
        """The texts, read by the evaluator and by the model."""
        # The first short window is the beginning that was read already.
        windows = -(-(self.length - self.short) // self.advance) - 1
        finding = self.length + windows * (self.short + self.advance)
        tokens = self.length if self.key_tokens else finding + self.length * (self.evaluator is not None)
        return [Samples("texts", self.texts, self.length, tokens, self.length)]

    def others(self, run: RunSpec, model: Predictor) -> dict[str, Any]:
        """The evaluator, loaded as the measured model is."""
        return {"evaluator": run.load_beside(model, self.evaluator)}


class LongPplSettings(LongPplSpec):
    """The spec with its defaults filled in, and what models and text decided."""

    evaluator: str  # type: ignore[assignment]
    stride: int  # type: ignore[assignment]
    available: int
    """Texts that the corpus has, at most `texts`."""
    bos_id: int | None
    """The model's."""
    evaluator_bos_id: int | None
    evaluator_trained: int | None = None
    """Tokens that the evaluator was trained for, if its configuration says."""


def measure_longppl(
    model: ModelLike,
    text: TextLike,
    spec: LongPplSpec = LongPplSpec(),  # noqa: B008
    *,
    evaluator: ModelLike | None = None,
    log: SampleLog | None = None,
) -> Measurement:
    """LongPPL of `model` on texts of a corpus.

    Rows of task "longppl": `longppl` = exp(`loss_key`), `perplexity` = exp(`loss`) of all tokens of the same
    texts, `key_share` (of the model's tokens); and, where the model is its own evaluator, `jeffreys`: how much
    its predictions with all context and with the short one disagree, from the same two passes.

    Args:
        model: loaded and in eval mode, a name or path, or a pair (model, tokenizer).
        text: a corpus, a name or path, or a list of strings; not tokens, since tokenizers may differ.
        spec: the settings.
        evaluator: in place of the spec's. Without either the model is its own evaluator, which saves a pass.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: too short texts, a tokenizer without character offsets, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import as_model

    model, corpus = as_model(model), as_corpus(text)
    if spec.key_tokens is not None:
        return _on_earlier_key_tokens(model, corpus, spec, log)
    wanted = evaluator or spec.evaluator
    judge = model if wanted is None else as_model(wanted)
    judge.check_ready(spec.length)
    windows = sample_windows(
        tokenize(corpus, judge.tokenizer), spec.length, count=spec.texts, seed=spec.seed, allow_fewer=True
    )
    settings = LongPplSettings.of(
        spec,
        evaluator=judge.name,
        stride=spec.advance,
        available=len(windows),
        bos_id=resolve_bos(model.tokenizer, spec.bos),
        evaluator_bos_id=resolve_bos(judge.tokenizer, spec.bos),
        evaluator_trained=judge.trained_length,
    )
    whole = {document.id: document.text for document in corpus.documents}

    def fill(samples: SampleLog) -> None:
        from lengthwise.measure.key_tokens import encode

        for index, window in progress(samples.share(list(enumerate(windows))), what="longppl"):
            name = window.document_id
            _, offsets = encode(judge.tokenizer, whole[name], judge.name)
            begin, end = int(offsets[window.start, 0]), int(offsets[window.start + spec.length - 1, 1])
            _add(
                samples, _key(settings, index), model, settings, (name, begin, end), whole[name], judge=judge
            )

    return collect(log, fill, lambda samples: summarise(samples, settings, model.name))


def _on_earlier_key_tokens(
    model: Predictor, corpus: Corpus, spec: LongPplSpec, log: SampleLog | None
) -> Measurement:
    """LongPPL on the key tokens that the evaluator of an earlier run found; no evaluator is needed again."""
    earlier = _earlier(spec)
    settings = LongPplSettings(**{**earlier.settings, "bos_id": resolve_bos(model.tokenizer, spec.bos)})
    whole = {document.id: document.text for document in corpus.documents}

    def fill(samples: SampleLog) -> None:
        keys = [_key(settings, index) for index in range(settings.available)]
        for key in progress(samples.share(keys), what="longppl"):
            found = earlier.samples[key]
            place = (found["document"], found["start"], found["end"])
            _add(samples, key, model, settings, place, whole.get(found["document"], ""), found=found)

    return collect(log, fill, lambda samples: summarise(samples, settings, model.name))


def _earlier(spec: LongPplSpec) -> Measurement:
    """The run that the key tokens come from, which must be of the texts and settings of `spec`."""
    from lengthwise.measure.run_folder import read_measurement

    kind, earlier = read_measurement(Path(str(spec.key_tokens)))
    if kind != spec.kind:
        raise UsageError(f"{spec.key_tokens} is a run of {kind!r}", expected=f"a run of {spec.kind!r}")
    wanted = {
        "--max-length": ("length", spec.length),
        "--short": ("short", spec.short),
        "--stride": ("stride", spec.advance),
        "--limit": ("texts", spec.texts),
        "--seed": ("seed", spec.seed),
    }
    found = {option: earlier.settings[name] for option, (name, _) in wanted.items()}
    other = [option for option, (_, value) in wanted.items() if found[option] != value]
    if other:
        raise UsageError(
            f"the key tokens in {spec.key_tokens} were found with other settings ({', '.join(other)})",
            expected="the settings of that run",
            fix=" ".join(f"{option} {value}" for option, value in found.items()),
        )
    return earlier


def _add(
    samples: SampleLog,
    key: str,
    model: Predictor,
    settings: LongPplSettings,
    place: tuple[str, int, int],
    document: str,
    *,
    judge: Predictor | None = None,
    found: dict[str, Any] | None = None,
) -> None:
    """Score the text at `place` (document, first and last character) unless the log has it.

    Its key tokens are those that `judge` finds, or those of the sample `found`.
    """
    from lengthwise.measure.key_tokens import encode, find_key_tokens, whole_losses
    from lengthwise.models import naming_bad_logits

    name, begin, end = place
    text = document[begin:end]
    record = {"document": name, "start": begin, "end": end, "crc": zlib.crc32(text.encode())}
    words = f"characters {begin} to {end} of {name!r}"
    if found is not None and record["crc"] != found["crc"]:
        raise UsageError(
            f"{words} are not the text that the key tokens were found in",
            expected="the text of the earlier run",
        )
    if key in samples:
        check_logged(samples, key, record)
        return
    with naming_bad_logits(model, words):
        ids, offsets = encode(model.tokenizer, text, model.name)
        keys = None
        if judge is not None:
            keys = find_key_tokens(
                judge,
                text,
                short=settings.short,
                stride=settings.stride,
                alpha=settings.alpha,
                beta=settings.beta,
                bos_id=settings.evaluator_bos_id,
                batch_size=settings.batch_size,
            )
            found = {"spans": keys.spans, "compared": keys.compared}
        if keys is not None and judge is model:
            losses, jeffreys = keys.losses, keys.jeffreys
        else:
            model.check_ready(len(ids))
            losses, jeffreys = whole_losses(model, ids, settings.bos_id), None
    assert found is not None
    samples.append(
        key,
        {
            **record,
            **_sums(losses, offsets, found["spans"]),
            "compared": found["compared"],
            "jeffreys": jeffreys,
        },
    )


def summarise(log: SampleLog, settings: LongPplSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    keys = [key for index in range(settings.available) if (key := _key(settings, index)) in log]
    records = [log[key] for key in keys]
    notes = [bos_note(settings.bos_id)]
    if settings.available < settings.texts:
        notes.append(few_samples_note(settings.available, settings.texts, "texts", settings.length))
    if settings.evaluator_trained is not None and settings.evaluator_trained < settings.length:
        notes.append(
            f"The evaluator was trained for {settings.evaluator_trained} tokens, so its key tokens in texts of "
            f"{settings.length} are no guide to what needs far context."
        )
    if records and not any(record["key_tokens"] for record in records):
        notes.append("LongPPL is not defined: no token of these texts needs far context.")
    if any(record["jeffreys"] is not None for record in records):
        notes.append(
            "The model found the key tokens itself; compare LongPPL only between runs of one evaluator."
        )
    return Measurement.of(
        _statistics(records, settings, model_name) if records else [],
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available,
    )


def _sums(
    losses: NDArray[np.float64], offsets: NDArray[np.int64], spans: Sequence[Sequence[int]]
) -> dict[str, Any]:
    from lengthwise.measure.key_tokens import tokens_within

    key = tokens_within(offsets, spans)
    return {
        "key_tokens": len(key),
        "key_loss": float(losses[key - 1].sum()),
        "tokens": len(losses),
        "loss": float(losses.sum()),
        "spans": [list(span) for span in spans],
    }


def _statistics(
    records: Sequence[dict[str, Any]], settings: LongPplSettings, model_name: str
) -> list[Statistic]:
    blank = Row(model=model_name, task="longppl", metric="", value=None, length=settings.length)
    of_all: list[tuple[str, str, str, str, Estimator]] = [
        ("longppl", "ratio", "key_loss", "key_tokens", _exponential),
        ("loss_key", "nats", "key_loss", "key_tokens", ratio),
        ("perplexity", "ratio", "loss", "tokens", _exponential),
        ("loss", "nats", "loss", "tokens", ratio),
        ("key_share", "share", "key_tokens", "tokens", ratio),
    ]
    if all(record["jeffreys"] is not None for record in records):
        of_all.append(("jeffreys", "nats", "jeffreys", "compared", ratio))
    return [
        Statistic.of(
            replace(blank, metric=metric, unit=unit, n=sum(record[count] for record in records)),
            [(record["document"], [record[value], record[count]]) for record in records],
            estimator=estimator,
        )
        for metric, unit, value, count, estimator in of_all
    ]


def _exponential(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(ratio(totals))


def _key(settings: LongPplSettings, index: int) -> str:
    return f"longppl/L{settings.length}/K{settings.short}/t{index:04d}"
