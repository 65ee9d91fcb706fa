"""Perplexity with temperatures at some lengths alone, and questions that are made once for all arms."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.evaluation.evaluate import Evaluation
from lengthwise.measure.measurement import Item, Record
from lengthwise.measure.perplexity import Perplexity
from lengthwise.subjects import Reading
from lengthwise.text import view

if TYPE_CHECKING:
    from lengthwise.subjects import Predictor, Reader
    from lengthwise.text import Corpus


class LongPerplexity(Perplexity):
    """`Perplexity`, whose temperatures cost as much as reading does on a GPU.

    At the lengths that are not in `tempered` it keeps the losses alone, as it does for an endpoint.
    """

    tempered: tuple[int, ...] = ()
    """Lengths at which the best temperature is fitted."""

    def score(self, model: Predictor, items: Sequence[Item], other: Predictor) -> Iterator[Record]:
        """The sums of each segment."""
        length, bos_id = items[0].longest, self.bos_id(model)
        if length in self.tempered:
            yield from super().score(model, items, other)
            return
        for item in items:
            ids = item.content.ids
            views = [view(ids, start, length, bos_id) for start in range(0, len(ids) - 1, length)]
            readings = [
                Reading(tokens=tokens, labels=labels)
                for tokens, labels in zip(views, ids[1:].reshape(-1, length), strict=True)
            ]
            own = np.concatenate([read.losses.numpy() for read in self.read(model, [item], readings)])
            binned = self._by_position(torch.from_numpy(own), length)
            yield {"targets": len(own), "loss": float(own.sum())} | binned


_MADE: dict[str, list[Item]] = {}
_MAKING = threading.Lock()


class SameQuestions(Evaluation):
    """`Evaluation`, whose questions are made once in a process: they depend on the settings and the tokenizer alone.

    To make 84 contexts of 8,192 tokens takes as long as to read them on a GPU.
    """

    def items(self, model: Reader, text: Corpus | None, other: Reader) -> list[Item]:
        """All questions with their prompts."""
        settings = self.model_dump_json()
        with _MAKING:
            if settings not in _MADE:
                _MADE[settings] = super().items(model, text, other)
            return _MADE[settings]
