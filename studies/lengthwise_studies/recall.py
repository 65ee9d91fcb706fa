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

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from annotated_types import Ge, MinLen
from pydantic import model_validator

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import About, Item, Record, WindowMeasurement, check_passage, grouped
from lengthwise.measure.statistics import Statistic
from lengthwise.settings import Count, Tokens, Whole
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import Predictor, Reader


class Recall(WindowMeasurement):
    """Is text far back still used?

    Measures the benefit of a repeated passage by its distance: the loss after a different passage minus the
    loss after the same one. 0 means that the model does not use text so far back.
    """

    about = About(
        kind="recall",
        task="recall",
        title="Recall by distance",
        metrics={
            "benefit": "loss_different - loss_same: what a repeated passage is worth; 0 if the model does not use it",
            "loss_same": "loss on a passage that came before, at this distance",
            "loss_different": "loss on the same passage after a different one",
        },
    )
    distances: Annotated[tuple[Tokens, ...], MinLen(1)] = (64, 128, 256, 512)
    """Tokens from a passage to its repetition."""
    passage: Annotated[Whole, Ge(2)] = 64
    """Tokens in the passage."""
    scored: Count = 48
    """Tokens at its end whose loss counts; those before are the cue for the copy."""
    windows: Count = 32
    """Windows of text at each distance, each read after the same and after a different passage."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_passage(passage=self.passage, scored=self.scored)
        if min(self.distances) < self.passage:
            raise UsageError(
                f"distance {min(self.distances)} is shorter than the passage of {self.passage} tokens",
                expected=f"distances of at least {self.passage} (from start to start)",
            )
        return self

    @property
    def at_once(self) -> int:
        """Pairs in a batch; the two sequences of a pair go together."""
        return max(1, self.batch_size // 2)

    def items(self, model: Reader, text: Any, other: Reader) -> list[Item]:
        """Every pair at every distance."""
        pairs = self.sampled(text, max(self.distances) + 3 * self.passage)
        found = []
        for distance, index, pair in self.by_size(pairs, self.distances):
            size = distance + self.passage - 1
            key = f"D{distance}/p{index:04d}"
            found.append(self.item(key, pair, size, tokens=2 * size, distance=distance))
        return found

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The summed losses of each passage, after the same one and after a different one."""
        from lengthwise.subjects import Reading

        distance, bos_id = items[0].facts["distance"], self.bos_id(model)
        windows = [item.content.ids for item in items]
        readings = [
            Reading(tokens=one, labels=ids[self.passage - self.scored : self.passage])
            for ids in windows
            for one in sequences(ids, distance, self.passage, bos_id)
        ]
        sums = [each.losses.sum().item() for each in self.read(model, items, readings)]
        for same, different in zip(sums[::2], sums[1::2], strict=True):
            yield {"targets": self.scored, "same": same, "different": different}

    def statistics(self, records: Sequence[Record]) -> list[Statistic]:
        """The three numbers of each distance. All have the same passages, so the curve is paired."""
        totals = {
            "benefit": lambda r: [r["different"] - r["same"], r["targets"]],
            "loss_same": lambda r: [r["same"], r["targets"]],
            "loss_different": lambda r: [r["different"], r["targets"]],
        }
        return [
            self.statistic(some, of, metric=metric, distance=distance, n=sum(r["targets"] for r in some))
            for distance, some in grouped(records, "distance")
            for metric, of in totals.items()
        ]


def sequences(ids: NDArray[np.integer], distance: int, passage: int, bos_id: int | None) -> NDArray[np.int64]:
    """The two sequences of a pair, same first, without the last token (it is only a target).

    `ids` is the stretch of Dmax + 3 * passage tokens described above. Returns [2, distance + passage - 1].
    """
    end = len(ids) - 2 * passage
    rest = np.concatenate([ids[end - (distance - passage) : end], ids[:passage]])
    both = (np.concatenate([first, rest]) for first in (ids[:passage], ids[-passage:]))
    return np.stack([view(whole, 0, distance + passage - 1, bos_id) for whole in both])
