"""Recall by distance: what a passage that stood before is worth when it comes again.

A sequence is [first passage][filler][second passage], the passages P tokens each, their starts `distance`
tokens apart. Once the first passage is the same as the second, once it is a different one; all else is equal.

    benefit = loss(last tokens of the second passage | a different first passage)
            - loss(the same tokens               | the same first passage)

In nats a token. It needs no labels: a model that still uses what stands `distance` tokens back copies; at 0
that text might as well not be there. Everything of a pair comes from one stretch of one document,

    same passage (P) | unused (P) | filler (Dmax - P) | unused (P) | different passage (P),

so that neither first passage runs on into the filler. A shorter distance uses the end of the filler, so
what stands right before the second passage is the same at every distance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.display import Display
from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Measurement, check_logged, interruptible, window_record
from lengthwise.measure.rows import NonFiniteRow, chunks, target_losses
from lengthwise.measure.running import (
    bos_note,
    check_count,
    check_model,
    check_sizes,
    hidden_states,
    in_groups,
    named,
    naming_bad_logits,
)
from lengthwise.measure.statistics import Statistic
from lengthwise.progress import progress
from lengthwise.results import Row
from lengthwise.samples import SampleLog
from lengthwise.text import resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import TokenDocuments, Window

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


@dataclass(frozen=True, kw_only=True)
class RecallSettings:
    """Everything besides model and text that decides the numbers."""

    distances: tuple[int, ...]
    passage: int
    scored: int
    pairs: int
    """Pairs that were asked for."""
    available: int
    """Pairs that the text has, at most `pairs`."""
    bos_id: int | None
    seed: int


def measure_recall(
    model: LoadedModel,
    documents: TokenDocuments,
    *,
    distances: Sequence[int],
    passage: int = 64,
    scored: int = 48,
    pairs: int = 32,
    bos: str = "auto",
    seed: int = 0,
    batch_size: int = 1,
    log: SampleLog | None = None,
) -> Measurement:
    """What a repeated passage is worth, by the distance between the starts of its two occurrences.

    Rows of task "recall" for each distance: `benefit`, `loss_same`, `loss_different`, nats a token. The same
    passages are used at every distance, so the curve is paired.

    Args:
        model: loaded, in eval mode.
        documents: the text in this model's tokens.
        distances: tokens from start to start, at least `passage`.
        passage: tokens in the passage.
        scored: tokens at its end whose loss counts, fewer than `passage`; those before are the cue.
        pairs: pairs of passages; fewer where the text has fewer.
        bos: whether a sequence begins with BOS (in place of the first token of its first passage): "auto",
            "always", "never".
        seed: of the passages.
        batch_size: sequences in one forward pass; the two of a pair always go together.
        log: finished samples, read and appended to. None keeps them in memory.

    Raises:
        UsageError: a setting out of range, too short a text, more tokens than a learned table of positions
            has, a log of other samples.
        LengthwiseError: logits that are not finite.
        Interrupted: Ctrl-C; `partial` is the measurement of what was finished.
    """
    check_count("passage", passage, least=2)
    check_count("scored", scored)
    check_count("pairs", pairs)
    check_count("batch_size", batch_size)
    if scored >= passage:
        raise UsageError(
            f"scored is {scored} of a passage of {passage} tokens",
            expected=f"at most {passage - 1}: the tokens before are the cue for the copy",
        )
    distances = check_sizes("distance", distances, least=1)
    if distances[0] < passage:
        raise UsageError(
            f"distance {distances[0]} is shorter than the passage of {passage} tokens",
            expected=f"distances of at least {passage} (from start to start)",
            fix="leave it out, or use a shorter passage",
        )
    check_model(model, longest=distances[-1] + passage - 1)
    windows = sample_windows(documents, distances[-1] + 3 * passage, count=pairs, seed=seed, allow_fewer=True)
    settings = RecallSettings(
        distances=distances,
        passage=passage,
        scored=scored,
        pairs=pairs,
        available=len(windows),
        bos_id=resolve_bos(model.tokenizer, bos),
        seed=seed,
    )
    samples = SampleLog() if log is None else log
    with interruptible("the measurement", lambda: summarise(samples, settings, model.name)):
        _fill(samples, model, settings, windows, batch_size)
    return summarise(samples, settings, model.name)


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
        notes.append(
            f"The text holds {settings.available} pairs of passages without overlap, "
            f"not the {settings.pairs} that were asked for."
        )
    return Measurement.of(
        statistics,
        model_name=model_name,
        settings=asdict(settings),
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


def _fill(
    log: SampleLog,
    model: LoadedModel,
    settings: RecallSettings,
    windows: Sequence[Window],
    batch_size: int,
) -> None:
    """Score the pairs that the log does not hold yet, each at all distances before the next."""
    missing: list[tuple[int, Window]] = []
    for index, window in enumerate(windows):
        keys = [_key(distance, index) for distance in settings.distances]
        for key in keys:
            if key in log:
                check_logged(log, key, window)
        if any(key not in log for key in keys):
            missing.append((index, window))
    for group in in_groups(progress(missing, what="recall"), max(1, batch_size // 2)):
        for distance in settings.distances:
            todo = [(index, window) for index, window in group if _key(distance, index) not in log]
            if not todo:
                continue
            views = [sequences(window.ids, distance, settings.passage, settings.bos_id) for _, window in todo]
            hidden = hidden_states(model, np.concatenate(views), batch_size=2 * len(todo))
            last = hidden[:, -settings.scored :].unflatten(0, (len(todo), 2))
            for (index, window), rows in zip(todo, last, strict=True):
                labels = window.ids[settings.passage - settings.scored : settings.passage]
                with naming_bad_logits(model, f"the repetition at distance {distance}, {named(window)}"):
                    same, different = _losses(model, rows, labels, hidden.shape[1] - settings.scored)
                record = {"targets": settings.scored, "same": same, "different": different}
                log.append(_key(distance, index), {**window_record(window), **record})


@torch.no_grad()
def _losses(
    model: LoadedModel, rows: torch.Tensor, labels: NDArray[np.integer], first: int
) -> tuple[float, float]:
    """Sums of the targets' losses after the same and after a different passage.

    `rows` [2, scored, ...] begin at position `first` of the sequence, which only errors name.
    """
    flat = rows.flatten(0, 1)
    targets = torch.from_numpy(np.tile(np.asarray(labels, dtype=np.int64), 2)).to(flat.device)
    parts = []
    for some in chunks(len(flat), model.vocab_size):
        try:
            parts.append(target_losses(model.head.logits(flat[some]), targets[some]).double().cpu())
        except NonFiniteRow as error:
            raise NonFiniteRow(first + (some.start + error.row) % rows.shape[1]) from error
    same, different = torch.cat(parts).unflatten(0, (2, -1)).sum(dim=1).tolist()
    return same, different


def _key(distance: int, index: int) -> str:
    return f"recall/D{distance}/p{index:04d}"
