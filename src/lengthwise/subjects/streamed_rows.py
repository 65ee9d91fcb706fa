"""Rows that software makes as they are asked for, where it holds only one text at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.subjects.rows import Rows

HELD_BYTES = 2**30
"""The most bytes of logits held for a text while another one is read; a longer text is read again."""


@dataclass(eq=False)
class StreamedRows(Rows):
    """Rows that come in order, a few at a time; those that were handed on are not kept."""

    start: Callable[[int], Iterator[Tensor]]
    """(row) -> the logits from there on, [n, V] at a time, from reading the text once more."""
    count: int
    """T."""
    vocab_size: int
    being_read: list[weakref.ref[StreamedRows]]
    """The rows that the software reads now, at most one: shared by all rows of it."""
    _next: int = field(default=-1, init=False)
    _logits: Iterator[Tensor] = field(init=False, repr=False)
    _held: Tensor = field(init=False, repr=False)

    def __len__(self) -> int:
        return self.count

    def logits(self, rows: slice) -> Tensor:
        """See `Rows.logits`."""
        if rows.start != self._next:
            for other in self.being_read:
                if (before := other()) is not None:
                    before._step_aside()
            self.being_read[:] = [weakref.ref(self)]
            self._logits, self._held = self.start(rows.start), torch.empty((0, self.vocab_size))
        n = rows.stop - rows.start
        while len(self._held) < n:
            self._held = torch.cat([self._held, next(self._logits)])
        found, self._held, self._next = self._held[:n], self._held[n:], rows.stop
        return found

    def _step_aside(self) -> None:
        """Make room for another text: read on to the end, or, if that is too much to hold, begin again later."""
        if 4 * self.vocab_size * (self.count - self._next) <= HELD_BYTES:
            self._held = torch.cat([self._held, *self._logits])
        else:
            self._next = -1
