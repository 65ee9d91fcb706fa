"""Rows that software makes as they are asked for, where it holds only one text at a time."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from lengthwise.subjects.rows import Rows

HELD_BYTES = 2**30
"""The most bytes of logits held for a text while another one is read; a longer text is read again."""


def streamed_rows(
    start: Callable[[int], Iterator[Tensor]], count: int, vocab_size: int, being_read: list[Any]
) -> Rows:
    """Rows that come in order, a few at a time; those that were handed on are not kept.

    Args:
        start: (row) -> the logits from there on, [n, V] at a time, from reading the text once more.
        count, vocab_size: T and V.
        being_read: what the software reads now, at most one text: shared by all rows of it.
    """
    return Rows(_Stream(start, count, vocab_size, being_read).logits, count, vocab_size)


@dataclass(eq=False)
class _Stream:
    """One text."""

    start: Callable[[int], Iterator[Tensor]]
    count: int
    vocab_size: int
    being_read: list[weakref.ref[_Stream]]
    _next: int = field(default=-1, init=False)
    _logits: Iterator[Tensor] = field(init=False, repr=False)
    _held: Tensor = field(init=False, repr=False)

    def logits(self, rows: slice) -> Tensor:
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
