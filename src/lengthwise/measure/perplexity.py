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

from lengthwise.errors import UsageError
from lengthwise.measure.display import Display
from lengthwise.measure.measurement import (
    Item,
    Reader,
    Record,
    WindowMeasurement,
    bos_note,
    by_size,
    window_facts,
    window_words,
)
from lengthwise.measure.statistics import Estimator, Statistic, equal_bins, ratio
from lengthwise.measure.temperature import KNOTS, best_inverse_temperature, loss_at_best_temperature
from lengthwise.results import Results, Row
from lengthwise.settings import PYTHON_ONLY, Count, Option, Whole, ascending
from lengthwise.text import sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from lengthwise.models import LoadedModel, Predictor


_PLAIN = KNOTS.index(1.0)


class Perplexity(WindowMeasurement):
    """How well are the same tokens predicted at each length?

    Measures loss and perplexity, and the loss after fitting one temperature per length, which leaves out mere
    over- or underconfidence. --fail-above checks perplexity.
    """

    kind = "ppl"
    task = "perplexity"
    display = Display(
        title="Loss by length",
        metrics={
            "loss": "cross entropy of the next token",
            "perplexity": "exp(loss)",
            "loss_best_temperature": "loss with one fitted temperature: without mere over- or underconfidence",
            "inverse_temperature": "the inverse of that temperature: below 1 the model is overconfident",
        },
        better={"loss": "lower"},
    )
    sample = wanted = "segments"
    fail_above = "perplexity"
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

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every segment at every length."""
        longest = max(self.lengths)
        segments = sample_windows(text, longest + 1, count=self.segments, seed=self.seed, allow_fewer=True)
        return [
            Item(
                key=f"perplexity/L{length}/s{index:04d}",
                facts={**window_facts(segment), "length": length},
                content=segment,
                tokens=longest,
                longest=length,
                stretch=longest + 1,
            )
            for length, index, segment in by_size(segments, ascending(self.lengths), at_once=self.at_once)
        ]

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of each segment; those at other temperatures come from whole distributions."""
        from lengthwise.models import LoadedModel

        length, bos_id = items[0].longest, self.bos_id(model)
        segments = [item.content for item in items]
        # A batch has as many windows as batch_size segments hold, so that a short length fills it too.
        views = [
            np.stack(
                [view(segment.ids, start, length, bos_id) for start in range(0, max(self.lengths), length)]
            )
            for segment in segments
        ]
        if isinstance(model, LoadedModel):
            return self._tempered(model, views, segments, length)
        return self._untempered(model, views, segments, length)

    def _tempered(
        self, model: LoadedModel, views: list[NDArray[np.int64]], segments: list[Any], length: int
    ) -> Iterator[Record]:
        import torch

        from lengthwise.models import naming_bad_logits

        hidden = model.hidden_states(torch.from_numpy(np.concatenate(views)))
        for segment, part in zip(segments, hidden.split(len(views[0])), strict=True):
            with naming_bad_logits(model, window_words(segment)):
                scores = _tempered_losses(model, part, segment.ids)
            record = {"targets": len(scores), "tempered": scores.sum(dim=0).flatten().tolist()}
            yield record | self._by_position(scores[:, _PLAIN, 0], length)

    def _untempered(
        self, model: Predictor, views: list[NDArray[np.int64]], segments: list[Any], length: int
    ) -> Iterator[Record]:
        import torch

        from lengthwise.models import naming_bad_logits

        labels = [each for segment in segments for each in segment.ids[1:].reshape(-1, length)]
        size = len(views[0])
        with naming_bad_logits(model, lambda view: window_words(segments[view // size])):
            found = model.token_losses([view for some in views for view in some], labels)
        for start in range(0, len(found), size):
            losses = torch.cat(found[start : start + size])
            record = {"targets": len(losses), "loss": losses.sum().item()}
            yield record | self._by_position(losses, length)

    def _by_position(self, losses: Tensor, length: int) -> Record:
        """The losses by bin of the position, at the greatest length."""
        if length != max(self.lengths):
            return {}
        edges = equal_bins(0, length, self.position_bins)
        return {"position": np.add.reduceat(losses.numpy(), edges[:-1]).tolist()}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The numbers of each length, then the loss by position.

        Rows of task "perplexity" for each length: `loss` (nats a token), `perplexity` = exp(loss),
        `loss_best_temperature` (the loss after fitting one inverse temperature for this model and length on
        these very targets) and `inverse_temperature` (the fitted one, in 1/2 .. 2). At the greatest length
        also `loss` by the row in the window (`position` .. `position_end` - 1). Temperatures need whole
        distributions: an endpoint has no such rows.
        """
        found: list[Statistic] = []
        for length in ascending(self.lengths):
            some = [record for record in records if record["length"] == length]
            found += _statistics(some, length) if some else []
        return found

    def notes(self, model: Reader, other: Reader, items: Sequence[Item], results: Results) -> list[str]:
        """The BOS, missing segments, and temperatures at the end of their range."""
        low, high = KNOTS[0], KNOTS[-1]
        at_the_end = [
            f"L = {row.length}: the best inverse temperature lies outside {low} .. {high}; "
            "the loss is that at the end of this range."
            for row in results.rows
            if row.metric == "inverse_temperature" and row.value is not None
            if not low * (1 + 1e-9) < row.value < high * (1 - 1e-9)
        ]
        return [bos_note(self.bos_id(model)), *self.few_samples_notes(items), *at_the_end]


def _tempered_losses(model: LoadedModel, hidden: Tensor, ids: NDArray[np.integer]) -> Tensor:
    """Losses of all targets of one segment at the knots, with derivatives: fp64 [Lmax, G, 4]."""
    import torch

    from lengthwise.measure.distributions import tempered_losses
    from lengthwise.models.loaded_model import score_rows

    labels = torch.from_numpy(np.asarray(ids[1:], dtype=np.int64)).to(hidden.device)
    return score_rows(
        model, hidden.flatten(0, 1), lambda logits, some: tempered_losses(logits, labels[some], KNOTS)
    )


def _statistics(records: Sequence[Record], length: int) -> list[Statistic]:
    n = sum(record["targets"] for record in records)
    blank = Row(model="", task="perplexity", metric="", value=None, length=length, n=n)
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
