"""Perplexity by length: the same target tokens, predicted with contexts of several lengths.

A segment is Lmax + 1 tokens. At length l its first Lmax tokens are cut into Lmax / l disjoint windows, each
read on its own, and row i of a window predicts the token after it: tokens 1 .. Lmax of the segment are the
targets at every length. A target's context at length l is 1 .. l tokens, all values equally often.

With BOS the first token of each window is replaced by it. The first target of a window then has BOS alone as
its context, and the others have BOS and one token of text less; the targets stay the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import model_validator

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import (
    Measurement,
    batches,
    bos_note,
    collect,
    few_samples_note,
    window_record,
    window_words,
)
from lengthwise.measure.statistics import Estimator, Statistic, equal_bins, ratio
from lengthwise.measure.temperature import KNOTS, best_inverse_temperature, loss_at_best_temperature
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.spec import PYTHON_ONLY, Count, Option, Samples, Spec, Whole, ascending
from lengthwise.text import as_documents, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import LoadedModel, ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window


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
_PLAIN = KNOTS.index(1.0)


class PerplexitySpec(Spec):
    """How well are the same tokens predicted at each length?

    Measures loss and perplexity, and the loss after fitting one temperature per length, which leaves out mere
    over- or underconfidence. --fail-above checks perplexity.
    """

    kind = "ppl"
    examples = (
        "lengthwise ppl smollm2-135m",
        "lengthwise ppl tiny-books --length 128 --length 256 --length 512 --limit 64",
        "lengthwise ppl ./my-model --adapter runs/lora/model --out runs/ppl",
    )

    lengths: Annotated[
        tuple[Annotated[Whole, Ge(2)], ...], MinLen(1), Option("--length", metavar="TOKENS")
    ] = (256, 512, 1024)
    """Context length in tokens; repeat it for several. Each divides the greatest."""
    segments: Annotated[Count, Option("--limit")] = 32
    """Segments of text, each as long as the greatest length."""
    position_bins: Annotated[Count, PYTHON_ONLY] = 8
    """Bins of the loss by position in the window, at the greatest length."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        longest = max(self.lengths)
        for length in self.lengths:
            if longest % length:
                divisors = [d for d in range(2, longest + 1) if longest % d == 0]
                near = [d for d in divisors if d < length][-1:] + [d for d in divisors if d > length][:1]
                raise UsageError(
                    f"length {length} does not divide the greatest length {longest}",
                    expected="lengths that do, so that all predict the same tokens; the nearest are "
                    + " and ".join(map(str, near)),
                )
        return self

    def samples(self) -> list[Samples]:
        """The segments, each read at all lengths."""
        longest = max(self.lengths)
        return [Samples("segments", self.segments, longest + 1, longest * len(self.lengths), longest)]


class PerplexitySettings(PerplexitySpec):
    """The spec, and what model and text decided."""

    available: int
    """Segments that the text has, at most `segments`."""
    bos_id: int | None


def measure_perplexity(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: PerplexitySpec = PerplexitySpec(),  # noqa: B008
    *,
    log: SampleLog | None = None,
) -> Measurement:
    """Loss and perplexity of the same targets at each length.

    Rows of task "perplexity" for each length: `loss` (nats a token), `perplexity` = exp(loss),
    `loss_best_temperature` (the loss after fitting one inverse temperature for this model and length on
    these very targets: what is left when over- or underconfidence is taken out) and `inverse_temperature`
    (the fitted one, in 1/2 .. 2; below 1 the model is overconfident). At the greatest length also `loss` by
    the row in the window (`position` .. `position_end` - 1). Temperatures need whole distributions: an endpoint
    has no rows of them.

    Args:
        model: loaded and in eval mode, a name or path, or a pair (model, tokenizer).
        text: the text in this model's tokens, a corpus, a name or path, or a list of strings.
        spec: the settings. One forward pass reads `batch_size` segments (as many windows as they hold).
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: too short a text, more tokens than a table of positions has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import as_model

    model = as_model(model)
    documents = as_documents(text, model.tokenizer)
    lengths = ascending(spec.lengths)
    model.check_ready(lengths[-1])
    windows = sample_windows(
        documents, lengths[-1] + 1, count=spec.segments, seed=spec.seed, allow_fewer=True
    )
    bos_id = resolve_bos(model.tokenizer, spec.bos)
    settings = PerplexitySettings.of(spec, lengths=lengths, available=len(windows), bos_id=bos_id)
    return collect(
        log,
        lambda samples: _fill(samples, model, settings, windows),
        lambda samples: summarise(samples, settings, model.name),
    )


perplexity_by_length = measure_perplexity


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
        tokens = settings.lengths[-1] + 1
        notes.append(few_samples_note(settings.available, settings.segments, "segments", tokens))
    measurement = Measurement.of(
        statistics,
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available * len(settings.lengths),
    )
    measurement.notes += _temperature_notes(measurement.rows)
    return measurement


def _fill(log: SampleLog, model: Predictor, settings: PerplexitySettings, windows: Sequence[Window]) -> None:
    """Score the segments that the log does not hold yet, each at all lengths before the next."""
    from lengthwise.models import LoadedModel

    # As many windows as batch_size segments hold, so that a short length fills the same batch.
    for length, indices, some in batches(
        log, windows, settings.lengths, _key, at_once=settings.batch_size, what="perplexity"
    ):
        views = [_windows(window.ids, length, settings.bos_id) for window in some]
        if isinstance(model, LoadedModel):
            records = _tempered(model, views, some, settings, length)
        else:
            records = _untempered(model, views, some, settings, length)
        for index, window, record in zip(indices, some, records, strict=True):
            log.append(_key(length, index), {**window_record(window), **record})


def _tempered(
    model: LoadedModel,
    views: Sequence[NDArray[np.int64]],
    windows: Sequence[Window],
    settings: PerplexitySettings,
    length: int,
) -> Iterator[dict[str, Any]]:
    """The sums of each segment, with the losses at other temperatures: from whole distributions."""
    import torch

    from lengthwise.models import naming_bad_logits

    hidden = model.hidden_states(torch.from_numpy(np.concatenate(views)))
    for window, part in zip(windows, hidden.split(len(views[0])), strict=True):
        with naming_bad_logits(model, window_words(window)):
            scores = _score(model, part, window.ids)
        record = {"targets": len(scores), "tempered": scores.sum(dim=0).flatten().tolist()}
        yield record | _by_position(scores[:, _PLAIN, 0], settings, length)


def _untempered(
    model: Predictor,
    views: Sequence[NDArray[np.int64]],
    windows: Sequence[Window],
    settings: PerplexitySettings,
    length: int,
) -> Iterator[dict[str, Any]]:
    """The sums of each segment: from the losses of its tokens alone."""
    import torch

    from lengthwise.models import naming_bad_logits

    labels = [each for window in windows for each in window.ids[1:].reshape(-1, length)]
    size = len(views[0])
    with naming_bad_logits(model, lambda view: window_words(windows[view // size])):
        found = model.token_losses([view for some in views for view in some], labels)
    for start in range(0, len(found), size):
        losses = torch.cat(found[start : start + size])
        record = {"targets": len(losses), "loss": losses.sum().item()}
        yield record | _by_position(losses, settings, length)


def _windows(ids: NDArray[np.integer], length: int, bos_id: int | None) -> NDArray[np.int64]:
    """The disjoint windows of `length` tokens in a segment of Lmax + 1 tokens: [Lmax / length, length]."""
    return np.stack([view(ids, start, length, bos_id) for start in range(0, len(ids) - 1, length)])


def _score(model: LoadedModel, hidden: Tensor, ids: NDArray[np.integer]) -> Tensor:
    """Losses of all targets of one segment at the knots, with derivatives: fp64 [Lmax, G, 4]."""
    import torch

    from lengthwise.measure.distributions import tempered_losses
    from lengthwise.models.losses import score_rows

    labels = torch.from_numpy(np.asarray(ids[1:], dtype=np.int64)).to(hidden.device)
    return score_rows(
        model, hidden.flatten(0, 1), lambda logits, some: tempered_losses(logits, labels[some], KNOTS)
    )


def _by_position(losses: Tensor, settings: PerplexitySettings, length: int) -> dict[str, Any]:
    """The losses by bin of the position, at the greatest length."""
    if length != settings.lengths[-1]:
        return {}
    edges = equal_bins(0, length, settings.position_bins)
    return {"position": np.add.reduceat(losses.numpy(), edges[:-1]).tolist()}


def _statistics(records: Sequence[dict[str, Any]], length: int, model_name: str) -> list[Statistic]:
    n = sum(record["targets"] for record in records)
    blank = Row(model=model_name, task="perplexity", metric="", value=None, length=length, n=n)
    of_all: list[tuple[str, str, Estimator]]
    if "tempered" in records[0]:
        # Column 0 is the count; the plain loss is the value at the knot 1.
        totals = [(record["document"], [record["targets"], *record["tempered"]]) for record in records]
        of_all = [
            ("loss", "nats", _loss),
            ("perplexity", "ratio", _perplexity),
            ("loss_best_temperature", "nats", loss_at_best_temperature),
            ("inverse_temperature", "ratio", best_inverse_temperature),
        ]
    else:
        totals = [(record["document"], [record["loss"], record["targets"]]) for record in records]
        of_all = [("loss", "nats", ratio), ("perplexity", "ratio", lambda sums: np.exp(ratio(sums)))]
    statistics = [
        Statistic.of(replace(blank, metric=metric, unit=unit), totals, estimator=estimator)
        for metric, unit, estimator in of_all
    ]
    if "position" in records[0]:
        for index, (begin, end) in enumerate(pairwise(equal_bins(0, length, len(records[0]["position"])))):
            sums = [(record["document"], [record["position"][index], end - begin]) for record in records]
            n = len(records) * (end - begin)
            row = replace(blank, metric="loss", position=begin, position_end=end, n=n)
            statistics.append(Statistic.of(row, sums))
    return statistics


def _loss(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return ratio(totals[:, [1 + 4 * _PLAIN, 0]])


def _perplexity(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.exp(_loss(totals))


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


def _key(length: int, index: int) -> str:
    return f"perplexity/L{length}/s{index:04d}"
