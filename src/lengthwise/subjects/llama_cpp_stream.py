"""The logits of a text as llama.cpp gives them: once, in order, and of one text at a time."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

HELD_BYTES = 2**30
"""The most bytes of logits held for a text while another one is read; a longer text is read again."""


class Stream:
    """The logits of one text in order, a few rows at a time; those that were handed on are not kept."""

    def __init__(self, model: Any, tokens: NDArray[Any], begin: int) -> None:
        self._model, self._tokens, self._begin = model, tokens, begin
        self._next = -1

    def logits(self, rows: slice) -> Tensor:
        """Those of some rows [n, V]; the text is read again unless they follow the rows before."""
        if rows.start != self._next:
            if (before := self._model.being_read) is not None and (other := before()) is not None:
                other._step_aside()
            self._model.being_read = weakref.ref(self)
            self._logits = self._model.logits(self._tokens, self._begin + rows.start)
            self._held = torch.empty((0, self._model.vocab_size))
        n = rows.stop - rows.start
        while len(self._held) < n:
            self._held = torch.cat([self._held, next(self._logits)])
        found, self._held, self._next = self._held[:n], self._held[n:], rows.stop
        return found

    def _step_aside(self) -> None:
        """Make room for another text: read on to the end, or, if that is too much to hold, begin again later."""
        left = len(self._tokens) - self._begin - self._next
        if 4 * self._model.vocab_size * left <= HELD_BYTES:
            self._held = torch.cat([self._held, *self._logits])
        else:
            self._next = -1
