"""LongPPL: perplexity on the tokens that need far context (Fang et al., arXiv 2410.23771, ICLR 2025).

An evaluator model reads a text once with all context and once with the last K tokens of it (K to K + stride - 1,
since windows advance by `stride`). A token is a key token if

    loss_short - loss_full > alpha   and   loss_full < -beta

and LongPPL of a model is exp(its mean loss on the key tokens, each with all context). Key tokens go from the
evaluator's tokenizer to the model's by their characters: neighbouring ones are joined, and those tokens of
the model are key that lie wholly inside. The number of a corpus divides once: sum of losses over all key
tokens by their number.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.errors import UsageError
from lengthwise.measure.contexts import compare_contexts, losses_of
from lengthwise.measure.measurement import Measurement, interruptible
from lengthwise.measure.running import bos_note, check_count, check_model, in_groups, naming_bad_logits
from lengthwise.measure.statistics import Estimator, Statistic, ratio
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, tokenize, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import Corpus

SHORT = 4096
STRIDE = 1024
ALPHA = 2.0
BETA = -2.0
Span = tuple[int, int]


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
    seed: int


@dataclass(frozen=True, kw_only=True)
class KeyTokens:
    """What the evaluator finds in one text."""

    spans: list[Span]
    """Characters of the key tokens, neighbours joined."""
    tokens: int
    """How many they are, in the evaluator's tokens."""
    losses: NDArray[np.float64]
    """The evaluator's own losses with all context, one for each of its tokens but the first."""
    compared: int
    """Tokens that were read with both contexts."""
    jeffreys: float
    """Disagreement of the two predictions, summed over them (nats)."""


def measure_longppl(
    model: LoadedModel,
    corpus: Corpus,
    *,
    evaluator: LoadedModel | None = None,
    length: int = 8192,
    texts: int = 8,
    short: int = SHORT,
    stride: int = STRIDE,
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
        length: evaluator's tokens in a text, more than `short`.
        texts: texts of that length; fewer where the corpus has fewer.
        short: K, tokens.
        stride: tokens by which the short windows advance.
        alpha: nats that all context must gain.
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
    check_longppl(length=length, texts=texts, short=short, stride=stride)
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
        seed=seed,
    )
    samples = SampleLog() if log is None else log
    whole = {document.id: document.text for document in corpus.documents}
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        for index, window in enumerate(progress(windows, what="longppl")):
            _, offsets = encode(judge.tokenizer, whole[window.document_id], judge.name)
            begin, end = offsets[window.start, 0], offsets[window.start + length - 1, 1]
            text = whole[window.document_id][begin:end]
            record = {"document": window.document_id, "start": int(begin), "crc": zlib.crc32(text.encode())}
            key = _key(settings, index)
            if key not in samples:
                with naming_bad_logits(model, f"characters {begin} to {end} of {window.document_id!r}"):
                    samples.append(key, {**record, **_score(text, model, judge, settings, batch_size)})
            elif any(samples[key][name] != value for name, value in record.items()):
                raise UsageError(
                    f"the sample log holds {key} of another text, tokenizer or seed",
                    fix="continue with the settings that it was begun with, or start a new log",
                )
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


def check_longppl(*, length: int, texts: int, short: int, stride: int) -> None:
    """Raise UsageError unless a text has tokens that are read with both contexts."""
    for name, count in (("length", length), ("texts", texts), ("short", short), ("stride", stride)):
        check_count(name, count)
    if length <= short:
        raise UsageError(
            f"texts of {length} tokens have none with more than the short context of {short}",
            expected="texts longer than the short context",
            fix="give a greater --max-length or a smaller --short",
        )


def encode(tokenizer: Any, text: str, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids [T] and the characters of each token [T, 2], without special tokens.

    Raises:
        UsageError: the tokenizer is a slow one, which does not know the characters.
    """
    if not tokenizer.is_fast:
        raise UsageError(
            f"the tokenizer of {name} does not say which characters its tokens are",
            expected="a fast tokenizer (tokenizer.json)",
        )
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = np.asarray(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    return np.asarray(found["input_ids"], dtype=np.int64), offsets


def find_key_tokens(
    evaluator: LoadedModel,
    text: str,
    *,
    short: int = SHORT,
    stride: int = STRIDE,
    alpha: float = ALPHA,
    beta: float = BETA,
    bos_id: int | None = None,
    batch_size: int = 1,
) -> KeyTokens:
    """The key tokens of one text of any length. Arguments as `measure_longppl`."""
    ids, offsets = encode(evaluator.tokenizer, text, evaluator.name)
    hidden = _read(evaluator, ids, bos_id)
    starts = range(0, max(0, len(ids) - short), stride)
    # The last window may be shorter, so it goes alone.
    full = [start for start in starts if start + short + stride <= len(ids)]
    groups = [*in_groups(full, batch_size), *([start] for start in starts if start not in full)]
    scores = []
    for group in groups:
        targets = min(stride, len(ids) - short - group[0])
        views = np.stack([view(ids, start, short + targets - 1, bos_id) for start in group])
        cut = evaluator.hidden_states(torch.from_numpy(views))[:, -targets:]
        for start, rows in zip(group, cut, strict=True):
            first = start + short
            labels = ids[first : first + targets]
            scores.append(
                compare_contexts(
                    evaluator, hidden[first - 1 : first - 1 + targets], rows, labels, first=first
                )
            )
    both = torch.cat(scores).numpy() if scores else np.empty((0, 3))
    labels = ids[1:short]
    early = losses_of(evaluator, hidden[: len(labels)], labels, first=0).numpy()
    loss, loss_short, jeffreys = both.T
    key = np.flatnonzero((loss_short - loss > alpha) & (loss < -beta)) + short
    return KeyTokens(
        spans=joined(offsets[key]),
        tokens=len(key),
        losses=np.concatenate([early, loss]),
        compared=len(both),
        jeffreys=float(jeffreys.sum()),
    )


def joined(offsets: NDArray[np.int64]) -> list[Span]:
    """Spans of characters in order, those that touch made one."""
    spans: list[Span] = []
    for begin, end in offsets.tolist():
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def tokens_within(offsets: NDArray[np.int64], spans: Sequence[Span]) -> NDArray[np.int64]:
    """Indices of the tokens whose characters lie wholly inside one span."""
    if not spans:
        return np.empty(0, dtype=np.int64)
    begins, ends = np.asarray(spans, dtype=np.int64).T
    place = np.searchsorted(begins, offsets[:, 0], side="right") - 1
    inside = (place >= 0) & (offsets[:, 1] <= ends[place.clip(0)]) & (offsets[:, 0] < offsets[:, 1])
    # The first token of a text has no prediction.
    inside[:1] = False
    return np.flatnonzero(inside)


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
    if model is judge:
        losses = found.losses
    else:
        check_model(model, longest=len(ids))
        hidden = _read(model, ids, settings.bos_id)
        losses = losses_of(model, hidden[:-1], ids[1:], first=0).numpy()
    key = tokens_within(offsets, found.spans)
    return {
        "key_tokens": len(key),
        "key_loss": float(losses[key - 1].sum()),
        "tokens": len(losses),
        "loss": float(losses.sum()),
        "compared": found.compared,
        "jeffreys": found.jeffreys if model is judge else None,
        "spans": found.spans,
    }


def _read(model: LoadedModel, ids: NDArray[np.int64], bos_id: int | None) -> torch.Tensor:
    return model.hidden_states(torch.from_numpy(view(ids, 0, len(ids), bos_id))[None])[0]


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
