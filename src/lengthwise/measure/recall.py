"""Recall by distance: how much an earlier occurrence of a passage lowers the loss on its repetition.

A sequence is [first passage][filler][second passage], the passages P tokens each, their starts `distance`
tokens apart. Once the first passage is the same as the second, once it is a different one; all else is equal.

    benefit = loss(last tokens of the second passage | a different first passage)
            - loss(the same tokens               | the same first passage)

In nats a token, without labels. A model that uses text `distance` tokens back copies from it; at 0 it does not
use that text. Everything of a pair comes from one stretch of one document,

    same passage (P) | unused (P) | filler (Dmax - P) | unused (P) | different passage (P),

so that neither first passage continues into the filler. A shorter distance uses the end of the filler, so the
tokens right before the second passage are the same at every distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Self

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import model_validator

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import (
    Measurement,
    batches,
    bos_note,
    check_passage,
    collect,
    few_samples_note,
    window_record,
    window_words,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.spec import NO_OPTION, Count, Option, Samples, Spec, Tokens, Whole, ascending
from lengthwise.text import as_documents, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import ModelLike, Predictor
    from lengthwise.text import TextLike, TokenDocuments, Window

DISPLAY = Display(
    title="Recall by distance",
    question="Does the model still use text that is far back?",
    metrics={
        "benefit": "loss_different - loss_same: what a repeated passage is worth; 0 if the model does not use it",
        "loss_same": "loss on a passage that came before, at this distance",
        "loss_different": "loss on the same passage after a different one",
    },
    better={"benefit": "higher"},
    figures=("recall_by_distance",),
    answer="recall_answer",
)


class RecallSpec(Spec):
    """Is text far back still used?

    Measures the benefit of a repeated passage by its distance: the loss after a different passage minus the
    loss after the same one. 0 means that the model does not use text so far back.
    """

    kind = "recall"
    examples = (
        "lengthwise recall smollm2-135m",
        "lengthwise recall tiny-books --distance 64 --distance 128 --distance 256",
        "lengthwise recall ./my-model --adapter runs/lora/model --out runs/recall",
    )

    distances: Annotated[tuple[Tokens, ...], MinLen(1), Option("--distance", metavar="TOKENS")] = (
        64, 128, 256, 512,
    )  # fmt: skip
    """Tokens from a passage to its repetition; repeat it for several."""
    passage: Annotated[Whole, Ge(2), NO_OPTION] = 64
    """Tokens in the passage."""
    scored: Annotated[Count, NO_OPTION] = 48
    """Tokens at its end whose loss counts; those before are the cue for the copy."""
    pairs: Annotated[Count, Option("--limit")] = 32
    """Pairs of passages at each distance."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        if min(self.distances) < self.passage:
            raise UsageError(
                f"distance {min(self.distances)} is shorter than the passage of {self.passage} tokens",
                expected=f"distances of at least {self.passage} (from start to start)",
                fix="leave it out, or use a shorter passage",
            )
        return self

    def samples(self) -> list[Samples]:
        """The pairs of passages, each read at all distances."""
        inputs = [distance + self.passage - 1 for distance in self.distances]
        stretch = max(self.distances) + 3 * self.passage
        return [Samples("pairs of passages", self.pairs, stretch, 2 * sum(inputs), max(inputs))]


class RecallSettings(RecallSpec):
    """The spec, and what model and text decided."""

    available: int
    """Pairs that the text has, at most `pairs`."""
    bos_id: int | None


def measure_recall(
    model: ModelLike,
    text: TextLike | TokenDocuments,
    spec: RecallSpec = RecallSpec(),  # noqa: B008
    *,
    log: SampleLog | None = None,
) -> Measurement:
    """What a repeated passage is worth, by the distance between the starts of its two occurrences.

    Rows of task "recall" for each distance: `benefit`, `loss_same`, `loss_different`, nats a token. The same
    passages are used at every distance, so the curve is paired.

    Args:
        model: loaded and in eval mode, a name, or a pair of model and tokenizer.
        text: the text in this model's tokens, a corpus, a name, or a list of strings.
        spec: the settings. Two sequences of a pair go together at any `batch_size`.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: too short a text, more tokens than a learned table of positions has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    from lengthwise.models import as_model

    model = as_model(model)
    documents = as_documents(text, model.tokenizer)
    distances = ascending(spec.distances)
    model.check_ready(distances[-1] + spec.passage - 1)
    [sample] = spec.samples()
    windows = sample_windows(documents, sample.stretch, count=spec.pairs, seed=spec.seed, allow_fewer=True)
    bos_id = resolve_bos(model.tokenizer, spec.bos)
    settings = RecallSettings.of(spec, distances=distances, available=len(windows), bos_id=bos_id)
    return collect(
        log,
        lambda samples: _fill(samples, model, settings, windows),
        lambda samples: summarise(samples, settings, model.name),
    )


def summarise(log: SampleLog, settings: RecallSettings, model_name: str) -> Measurement:
    """The numbers from the samples in `log` alone; partial if some are missing."""
    statistics: list[Statistic] = []
    keys: list[str] = []
    notes = [bos_note(settings.bos_id)]
    for distance in settings.distances:
        found = [key for index in range(settings.available) if (key := _key(distance, index)) in log]
        records = [log[key] for key in found]
        for metric, same, different in _METRICS if found else ():
            row = Row(
                model=model_name,
                task="recall",
                metric=metric,
                value=None,
                distance=distance,
                n=sum(record["targets"] for record in records),
            )
            totals = [
                (r["document"], [same * r["same"] + different * r["different"], r["targets"]])
                for r in records
            ]
            statistics.append(Statistic.of(row, totals))
        keys += found
    if settings.available < settings.pairs:
        tokens = max(settings.distances) + 3 * settings.passage
        notes.append(few_samples_note(settings.available, settings.pairs, "pairs of passages", tokens))
    return Measurement.of(
        statistics,
        model_name=model_name,
        settings=settings.identity(),
        samples=log,
        keys=keys,
        notes=notes,
        partial=len(keys) < settings.available * len(settings.distances),
    )


# Metric, and how it is made of the losses after the same and after a different passage.
_METRICS = (("benefit", -1, 1), ("loss_same", 1, 0), ("loss_different", 0, 1))


def sequences(ids: NDArray[np.integer], distance: int, passage: int, bos_id: int | None) -> NDArray[np.int64]:
    """The two sequences of a pair, same first, without the last token (it is only a target).

    `ids` is the stretch of Dmax + 3 * passage tokens described above. Returns [2, distance + passage - 1].
    """
    same, different = ids[:passage], ids[len(ids) - passage :]
    filler = ids[2 * passage : len(ids) - 2 * passage]
    between = filler[len(filler) - (distance - passage) :]
    return np.stack(
        [
            view(np.concatenate([first, between, same]), 0, distance + passage - 1, bos_id)
            for first in (same, different)
        ]
    )


def _fill(log: SampleLog, model: Predictor, settings: RecallSettings, windows: Sequence[Window]) -> None:
    """Score the pairs that the log does not hold yet, each at all distances before the next."""
    import torch

    from lengthwise.models import naming_bad_logits

    pairs = max(1, settings.batch_size // 2)
    for distance, indices, some in batches(
        log, windows, settings.distances, _key, at_once=pairs, what="recall"
    ):
        views = [sequences(window.ids, distance, settings.passage, settings.bos_id) for window in some]
        labels = [window.ids[settings.passage - settings.scored : settings.passage] for window in some]
        with naming_bad_logits(model, _words(some, distance)):
            losses = model.token_losses(
                [view for pair in views for view in pair], [each for each in labels for _ in range(2)]
            )
        sums = torch.stack(losses).unflatten(0, (-1, 2)).sum(dim=-1).tolist()
        for index, window, (same, different) in zip(indices, some, sums, strict=True):
            record = {"targets": settings.scored, "same": same, "different": different}
            log.append(_key(distance, index), {**window_record(window), **record})


def _words(windows: Sequence[Window], distance: int) -> Callable[[int], str]:
    """The text of a view, two views a window, in words."""
    return lambda view: f"the repetition at distance {distance}, {window_words(windows[view // 2])}"


def _key(distance: int, index: int) -> str:
    return f"recall/D{distance}/p{index:04d}"
