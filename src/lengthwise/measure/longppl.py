"""LongPPL: perplexity on the tokens that need far context (Fang et al., arXiv 2410.23771, ICLR 2025).

LongPPL of a model is exp(its mean loss on the key tokens, each with all context), which an evaluator finds
(`lengthwise.measure.key_tokens`). Key tokens go from the evaluator's tokenizer to the model's by their characters:
neighbouring ones are joined, and those tokens of the model are key that lie wholly inside. The number of a corpus
divides once: sum of losses over all key tokens by their number.

The samples of a run hold the texts' places and the key tokens' characters, so that another model can be measured
on them without the evaluator.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.contexts import losses_of
from lengthwise.measure.key_tokens import (
    ALPHA,
    BETA,
    SHORT,
    encode,
    find_key_tokens,
    read_whole,
    stride_of,
    tokens_within,
)
from lengthwise.measure.measurement import Measurement, interruptible
from lengthwise.measure.running import bos_note, check_count, check_model, naming_bad_logits
from lengthwise.measure.statistics import Estimator, Statistic, ratio
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, tokenize

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import Corpus

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


@dataclass(frozen=True, kw_only=True)
class LongPplSettings:
    """Everything besides model and text that decides the numbers."""

    evaluator: str
    length: int
    """Evaluator's tokens in a text."""
    short: int
    """K."""
    stride: int
    alpha: float
    beta: float
    texts: int
    """Texts that were asked for."""
    available: int
    """Texts that the corpus has, at most `texts`."""
    bos_id: int | None
    """The model's."""
    evaluator_bos_id: int | None
    evaluator_trained: int | None = None
    """Tokens that the evaluator was trained for, if its configuration says."""
    seed: int


def measure_longppl(
    model: LoadedModel,
    corpus: Corpus,
    *,
    evaluator: LoadedModel | None = None,
    length: int = 8192,
    texts: int = 8,
    short: int = SHORT,
    stride: int | None = None,
    alpha: float = ALPHA,
    beta: float = BETA,
    bos: str = "auto",
    seed: int = 0,
    batch_size: int = 1,
    log: SampleLog | None = None,
) -> Measurement:
    """LongPPL of `model` on texts of a corpus.

    Rows of task "longppl": `longppl` = exp(`loss_key`), `perplexity` = exp(`loss`) of all tokens of the same
    texts, `key_share` (of the model's tokens); and, where the model is its own evaluator, `jeffreys`: how much
    its predictions with all context and with the short one disagree, from the same two passes.

    Args:
        model: loaded, in eval mode.
        corpus: texts, not tokens: the two models may have different tokenizers.
        evaluator: finds the key tokens; None lets the model do it, which spares a pass. LongPPL of two models
            are comparable only with the same evaluator.
        length: evaluator's tokens in a text, more than `short` + `stride`.
        texts: texts of that length; fewer where the corpus has fewer.
        short: K, tokens.
        stride: tokens by which the short windows advance. Default: a quarter of `short`.
        alpha: nats that all context must gain, at least 0.
        beta: minus the loss with all context below which a token may be key.
        bos: whether every view begins with BOS (in place of its first token): "auto", "always", "never".
        seed: of the texts.
        batch_size: short windows in one forward pass. Changes nothing but speed and memory.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a setting out of range, too short texts, a tokenizer that does not say which characters its
            tokens are, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    stride = stride_of(short, stride)
    check_longppl(length=length, texts=texts, short=short, stride=stride)
    if not alpha >= 0:
        raise UsageError(f"alpha is {alpha}", expected="nats that all context must gain, at least 0")
    check_count("batch_size", batch_size)
    judge = model if evaluator is None else evaluator
    check_model(judge, longest=length)
    windows = sample_windows(
        tokenize(corpus, judge.tokenizer), length, count=texts, seed=seed, allow_fewer=True
    )
    settings = LongPplSettings(
        evaluator=judge.name,
        length=length,
        short=short,
        stride=stride,
        alpha=alpha,
        beta=beta,
        texts=texts,
        available=len(windows),
        bos_id=resolve_bos(model.tokenizer, bos),
        evaluator_bos_id=resolve_bos(judge.tokenizer, bos),
        evaluator_trained=judge.trained_length,
        seed=seed,
    )
    samples = SampleLog() if log is None else log
    whole = {document.id: document.text for document in corpus.documents}
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        for index, window in enumerate(progress(windows, what="longppl")):
            _, offsets = encode(judge.tokenizer, whole[window.document_id], judge.name)
            begin, end = offsets[window.start, 0], offsets[window.start + length - 1, 1]
            text = whole[window.document_id][begin:end]
            record = _text_record(window.document_id, int(begin), int(end), text)
            if not _is_logged(samples, _key(settings, index), record):
                with naming_bad_logits(model, f"characters {begin} to {end} of {window.document_id!r}"):
                    scores = _score(text, model, judge, settings, batch_size)
                samples.append(_key(settings, index), {**record, **scores})
    return summarise(samples, settings, model.name)


def measure_on_key_tokens(
    model: LoadedModel,
    corpus: Corpus,
    earlier: SampleLog,
    settings: LongPplSettings,
    *,
    bos: str = "auto",
    log: SampleLog | None = None,
) -> Measurement:
    """LongPPL of `model` on the key tokens that an earlier measurement's evaluator found, which is not needed again.

    Args:
        model: loaded, in eval mode; its tokenizer may differ.
        corpus: the text of the earlier measurement.
        earlier: its samples.
        settings: its settings.
        bos: as `measure_longppl`, for `model`.
        log: as `measure_longppl`.

    Raises:
        UsageError: the corpus has other texts, or as `measure_longppl`.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    settings = replace(settings, bos_id=resolve_bos(model.tokenizer, bos))
    samples = SampleLog() if log is None else log
    whole = {document.id: document.text for document in corpus.documents}
    keys = [_key(settings, index) for index in range(settings.available)]
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        for key in progress(keys, what="longppl"):
            found = earlier[key]
            begin, end = found["start"], found["end"]
            text = whole.get(found["document"], "")[begin:end]
            record = _text_record(found["document"], begin, end, text)
            if record["crc"] != found["crc"]:
                raise UsageError(
                    f"characters {begin} to {end} of {found['document']!r} are another text than key tokens "
                    "were found in",
                    expected="the text of the earlier run",
                )
            if not _is_logged(samples, key, record):
                with naming_bad_logits(model, f"characters {begin} to {end} of {found['document']!r}"):
                    ids, offsets = encode(model.tokenizer, text, model.name)
                    losses = _losses(model, ids, settings)
                scores = _sums(losses, offsets, found["spans"])
                samples.append(key, {**record, **scores, "compared": found["compared"], "jeffreys": None})
    return summarise(samples, settings, model.name)


def summarise(log: SampleLog, settings: LongPplSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    keys = [key for index in range(settings.available) if (key := _key(settings, index)) in log]
    records = [log[key] for key in keys]
    notes = [bos_note(settings.bos_id)]
    if settings.available < settings.texts:
        notes.append(
            f"The text holds {settings.available} texts of {settings.length} tokens without overlap, "
            f"not the {settings.texts} that were asked for."
        )
    if settings.evaluator_trained is not None and settings.evaluator_trained < settings.length:
        notes.append(
            f"The evaluator was trained for {settings.evaluator_trained} tokens: what it says of texts of "
            f"{settings.length} is no guide to what needs far context."
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
        settings=asdict(settings),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available,
    )


def check_longppl(*, length: int, texts: int, short: int, stride: int | None) -> None:
    """Raise UsageError unless a text has tokens that are read with two contexts."""
    stride = stride_of(short, stride)
    for name, count in (("length", length), ("texts", texts), ("short", short), ("stride", stride)):
        check_count(name, count)
    if length <= short + stride:
        raise UsageError(
            f"texts of {length} tokens have none whose short context, up to {short + stride} tokens "
            f"(short {short} + stride {stride}), leaves anything out",
            expected=f"more than {short + stride} tokens",
            fix="give a greater --max-length, or a smaller --short and --stride",
        )


def _text_record(document: str, begin: int, end: int, text: str) -> dict[str, Any]:
    return {"document": document, "start": begin, "end": end, "crc": zlib.crc32(text.encode())}


def _is_logged(log: SampleLog, key: str, record: dict[str, Any]) -> bool:
    """Whether the text is finished.

    Raises:
        UsageError: the log holds another text under its key.
    """
    if key in log and any(log[key].get(name) != value for name, value in record.items()):
        raise UsageError(
            f"the sample log holds {key} of another text, tokenizer or seed",
            fix="continue with the settings that it was begun with, or start a new log",
        )
    return key in log


def _score(
    text: str, model: LoadedModel, judge: LoadedModel, settings: LongPplSettings, batch_size: int
) -> dict[str, Any]:
    found = find_key_tokens(
        judge,
        text,
        short=settings.short,
        stride=settings.stride,
        alpha=settings.alpha,
        beta=settings.beta,
        bos_id=settings.evaluator_bos_id,
        batch_size=batch_size,
    )
    ids, offsets = encode(model.tokenizer, text, model.name)
    losses = found.losses if model is judge else _losses(model, ids, settings)
    return {
        **_sums(losses, offsets, found.spans),
        "compared": found.compared,
        "jeffreys": found.jeffreys if model is judge else None,
    }


def _losses(model: LoadedModel, ids: NDArray[np.int64], settings: LongPplSettings) -> NDArray[np.float64]:
    check_model(model, longest=len(ids))
    hidden = read_whole(model, ids, settings.bos_id)
    return losses_of(model, hidden[:-1], ids[1:], first=0).numpy()


def _sums(
    losses: NDArray[np.float64], offsets: NDArray[np.int64], spans: Sequence[Sequence[int]]
) -> dict[str, Any]:
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
