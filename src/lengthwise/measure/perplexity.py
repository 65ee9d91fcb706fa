"""Perplexity by length: the same target tokens, predicted with contexts of several lengths.

A segment is Lmax + 1 tokens. At length l its first Lmax tokens are cut into Lmax / l disjoint windows, each
read on its own, and row i of a window predicts the token after it: tokens 1 .. Lmax of the segment are the
targets at every length. A target's context at length l is 1 .. l tokens, all values equally often.

With BOS the first token of each window is replaced by it. The first target of a window then has BOS alone as
its context, and the others have BOS and one token of text less; the targets stay the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Measurement, check_logged, interruptible, window_record
from lengthwise.measure.rows import NonFiniteRow, chunks, tempered_losses
from lengthwise.measure.running import (
    bos_note,
    check_count,
    check_model,
    check_sizes,
    equal_bins,
    hidden_states,
    in_groups,
    named,
    naming_bad_logits,
)
from lengthwise.measure.statistics import Estimator, Statistic, ratio
from lengthwise.measure.temperature import KNOTS, best_inverse_temperature, loss_at_best_temperature
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import TokenDocuments, Window

DISPLAY = Display(
    title="Loss by length",
    question="How well does the model predict the same tokens at each length?",
    metrics={
        "loss": "cross entropy of the next token",
        "perplexity": "exp(loss)",
        "loss_best_temperature": "loss with one fitted temperature: what over- or underconfidence does not explain",
        "inverse_temperature": "the inverse of that temperature: below 1 the model is overconfident",
    },
    better={"loss": "lower"},
    figures=("loss_by_length", "loss_by_position"),
    answer="perplexity_answer",
)
POSITION_BINS = 8
_PLAIN = KNOTS.index(1.0)


@dataclass(frozen=True, kw_only=True)
class PerplexitySettings:
    """Everything besides model and text that decides the numbers."""

    lengths: tuple[int, ...]
    segments: int
    """Segments that were asked for."""
    available: int
    """Segments that the text has, at most `segments`."""
    bos_id: int | None
    seed: int
    position_bins: int = POSITION_BINS


def perplexity_by_length(
    model: LoadedModel,
    documents: TokenDocuments,
    *,
    lengths: Sequence[int],
    segments: int = 32,
    bos: str = "auto",
    seed: int = 0,
    batch_size: int = 1,
    position_bins: int = POSITION_BINS,
    log: SampleLog | None = None,
) -> Measurement:
    """Loss and perplexity of the same targets at each of `lengths`.

    Rows of task "perplexity" for each length: `loss` (nats a token), `perplexity` = exp(loss),
    `loss_best_temperature` (the loss after fitting one inverse temperature for this model and length on
    these very targets: what is left when over- or underconfidence is taken out) and `inverse_temperature`
    (the fitted one, in 1/2 .. 2; below 1 the model is overconfident). At the greatest length also `loss` by
    the row in the window (`position` .. `position_end` - 1).

    Args:
        model: loaded, in eval mode.
        documents: the text in this model's tokens.
        lengths: tokens of context; each must divide the greatest.
        segments: segments of the greatest length; fewer where the text has fewer.
        bos: whether every window begins with BOS (in place of its first token): "auto", "always", "never".
        seed: of the segments.
        batch_size: segments in one forward pass (at shorter lengths, as many windows as they hold).
        position_bins: bins of the loss by position.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a setting out of range, a length that does not divide the greatest, too short a text,
            more tokens than a learned table of positions has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    check_count("segments", segments)
    check_count("batch_size", batch_size)
    check_count("position_bins", position_bins)
    lengths = check_sizes("length", lengths, least=2)
    longest = lengths[-1]
    for length in lengths:
        _check_divides(length, longest)
    check_model(model, longest=longest)
    windows = sample_windows(documents, longest + 1, count=segments, seed=seed, allow_fewer=True)
    settings = PerplexitySettings(
        lengths=lengths,
        segments=segments,
        available=len(windows),
        bos_id=resolve_bos(model.tokenizer, bos),
        seed=seed,
        position_bins=position_bins,
    )
    samples = SampleLog() if log is None else log
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        _fill(samples, model, settings, windows, batch_size)
    return summarise(samples, settings, model.name)


def summarise(log: SampleLog, settings: PerplexitySettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    statistics: list[Statistic] = []
    keys: list[str] = []
    notes = [bos_note(settings.bos_id)]
    for length in settings.lengths:
        found = [key for index in range(settings.available) if (key := _key(length, index)) in log]
        if found:
            statistics += _statistics([log[key] for key in found], length, model_name)
        keys += found
    if settings.available < settings.segments:
        notes.append(
            f"The text holds {settings.available} segments of {settings.lengths[-1] + 1} tokens without "
            f"overlap, not the {settings.segments} that were asked for."
        )
    measurement = Measurement.of(
        statistics,
        model_name=model_name,
        settings=asdict(settings),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available * len(settings.lengths),
    )
    measurement.notes += _temperature_notes(measurement.rows)
    return measurement


def _fill(
    log: SampleLog,
    model: LoadedModel,
    settings: PerplexitySettings,
    windows: Sequence[Window],
    batch_size: int,
) -> None:
    """Score the segments that the log does not hold yet, each at all lengths before the next."""
    missing: list[tuple[int, Window]] = []
    for index, window in enumerate(windows):
        keys = [_key(length, index) for length in settings.lengths]
        for key in keys:
            if key in log:
                check_logged(log, key, window)
        if any(key not in log for key in keys):
            missing.append((index, window))
    for group in in_groups(progress(missing, what="perplexity"), batch_size):
        for length in settings.lengths:
            todo = [(index, window) for index, window in group if _key(length, index) not in log]
            if not todo:
                continue
            views = [_windows(window.ids, length, settings.bos_id) for _, window in todo]
            together = np.concatenate(views)
            # As many windows as batch_size segments hold, so that a short length fills the same batch.
            hidden = hidden_states(model, together, batch_size=len(together))
            for (index, window), part in zip(todo, hidden.split(len(views[0])), strict=True):
                with naming_bad_logits(model, named(window)):
                    scores = _score(model, part, window.ids)
                log.append(_key(length, index), {**window_record(window), **_sums(scores, settings, length)})


def _windows(ids: NDArray[np.integer], length: int, bos_id: int | None) -> NDArray[np.int64]:
    """The disjoint windows of `length` tokens in a segment of Lmax + 1 tokens: [Lmax / length, length]."""
    return np.stack([view(ids, start, length, bos_id) for start in range(0, len(ids) - 1, length)])


@torch.no_grad()
def _score(model: LoadedModel, hidden: Tensor, ids: NDArray[np.integer]) -> Tensor:
    """Losses of all targets of one segment at the knots, with derivatives: fp64 [Lmax, G, 4]."""
    rows = hidden.flatten(0, 1)
    labels = torch.from_numpy(np.asarray(ids[1:], dtype=np.int64)).to(rows.device)
    parts = []
    for some in chunks(len(rows), model.vocab_size):
        try:
            parts.append(tempered_losses(model.head.logits(rows[some]), labels[some], KNOTS).cpu())
        except NonFiniteRow as error:
            raise NonFiniteRow(some.start + error.row) from error
    return torch.cat(parts)


def _sums(scores: Tensor, settings: PerplexitySettings, length: int) -> dict[str, Any]:
    record: dict[str, Any] = {"targets": len(scores), "tempered": scores.sum(dim=0).flatten().tolist()}
    if length == settings.lengths[-1]:
        losses = scores[:, _PLAIN, 0].numpy()
        record["position"] = np.add.reduceat(
            losses, _position_edges(length, settings.position_bins)[:-1]
        ).tolist()
    return record


def _statistics(records: Sequence[dict[str, Any]], length: int, model_name: str) -> list[Statistic]:
    n = sum(record["targets"] for record in records)
    blank = Row(model=model_name, task="perplexity", metric="", value=None, length=length, n=n)
    # Column 0 is the count; the plain loss is the value at the knot 1.
    totals = [(record["document"], [record["targets"], *record["tempered"]]) for record in records]
    of_all: list[tuple[str, str, Estimator]] = [
        ("loss", "nats", _loss),
        ("perplexity", "ratio", _perplexity),
        ("loss_best_temperature", "nats", loss_at_best_temperature),
        ("inverse_temperature", "ratio", best_inverse_temperature),
    ]
    statistics = [
        Statistic.of(replace(blank, metric=metric, unit=unit), totals, estimator=estimator)
        for metric, unit, estimator in of_all
    ]
    if "position" in records[0]:
        for index, (begin, end) in enumerate(pairwise(_position_edges(length, len(records[0]["position"])))):
            sums = [(record["document"], [record["position"][index], end - begin]) for record in records]
            n = len(records) * (end - begin)
            row = replace(blank, metric="loss", position=begin, position_end=end, n=n)
            statistics.append(Statistic.of(row, sums))
    return statistics


def _loss(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return ratio(totals[:, [1 + 4 * _PLAIN, 0]])


def _perplexity(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(_loss(totals))


def _position_edges(length: int, bins: int) -> list[int]:
    return equal_bins(0, length, bins)


def _temperature_notes(rows: Sequence[Row]) -> list[str]:
    low, high = KNOTS[0], KNOTS[-1]
    return [
        f"L = {row.length}: the best inverse temperature lies outside {low} .. {high}; "
        "the loss is that at the end of this range."
        for row in rows
        if row.metric == "inverse_temperature"
        and row.value is not None
        and not low * (1 + 1e-9) < row.value < high * (1 - 1e-9)
    ]


def _check_divides(length: int, longest: int) -> None:
    if longest % length == 0:
        return
    divisors = [d for d in range(2, longest + 1) if longest % d == 0]
    below = [d for d in divisors if d < length][-1:]
    above = [d for d in divisors if d > length][:1]
    raise UsageError(
        f"length {length} does not divide the greatest length {longest}",
        expected="lengths that do, so that all predict the same tokens; the nearest are "
        + " and ".join(map(str, below + above)),
    )


def _key(length: int, index: int) -> str:
    return f"perplexity/L{length}/s{index:04d}"
