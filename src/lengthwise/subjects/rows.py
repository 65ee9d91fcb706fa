"""The distributions of a reading, a few rows at a time; and where a model gives logits that are not finite."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits, chunk_rows, locating_bad_logits, require_finite

HELD_BYTES = 2**30
"""The most bytes of logits held for a text while another one is read; a longer text is read again."""


@dataclass(eq=False)
class Rows:
    """The distributions of the next token after the T tokens of a reading, a few rows at a time; no [T, V] is made.

    Rows are asked for in ascending order, so that a subject may read its text on the way.
    """

    logits: Callable[[slice], Tensor]
    """Some rows -> their logits up to a constant, [n, V], in float32 (float64 of a float64 model).

    NonFiniteLogits for NaN or an infinity; its position counts from the first of these rows.
    """
    count: int
    """T."""
    vocab_size: int
    hidden: Tensor | None = None
    """What the head takes for them, [T, ...], of weights that are here."""

    def __len__(self) -> int:
        return self.count

    @property
    def device(self) -> torch.device:
        """Where the logits are."""
        return torch.device("cpu") if self.hidden is None else self.hidden.device

    def log_p(self, rows: slice) -> Tensor:
        """log p of every token, [n, V]."""
        return self.logits(rows).log_softmax(dim=-1)

    def chunks(self, first: int = 0, end: int | None = None) -> Iterator[slice]:
        """The rows from `first` on, up to `end`, as many at a time as fit in memory."""
        size, end = chunk_rows(self.vocab_size, self.device), len(self) if end is None else end
        for begin in range(first, end, size):
            yield slice(begin, min(begin + size, end))

    @torch.no_grad()
    def score(
        self, score: Callable[[Tensor, slice], Tensor], *, first: int = 0, end: int | None = None
    ) -> Tensor:
        """`score` of every row from `first` on, up to `end`: fp64 [N, ...], on the CPU.

        Args:
            score: (logits [n, V], the slice of rows that they are of) -> [n, ...].
            first, end: the rows that count.

        Raises:
            NonFiniteLogits: a score is NaN or infinite; its position is the row.
        """
        parts = []
        for rows in self.chunks(first, end):
            with locating_bad_logits(rows.start):
                scores = score(self.logits(rows), rows)
                require_finite(scores)
            parts.append(scores.cpu().double())
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.float64)

    def losses(self, labels: NDArray[Any] | Tensor, *, first: int | None = None) -> Tensor:
        """-log p of the tokens after the last N rows, or after N from `first` on: fp64 [N], nats, on the CPU."""
        # A copy: documents are read-only views of the token cache, which torch does not take.
        given = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, dtype=np.int64))
        targets, begin = given.to(self.device), len(self) - len(given) if first is None else first

        def losses(logits: Tensor, rows: slice) -> Tensor:
            own = targets[rows.start - begin : rows.stop - begin]
            return torch.nn.functional.cross_entropy(logits, own, reduction="none")

        return self.score(losses, first=begin, end=begin + len(targets))


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


@contextmanager
def naming_bad_logits(model: Any, text: str | Callable[[int], str]) -> Iterator[None]:
    """Add the model's name and the text to a `NonFiniteLogits` raised inside, unless it has them.

    `text` is in words, or a function of the reading where several are read together.
    """
    try:
        yield
    except NonFiniteLogits as error:
        if error.text is not None:
            raise
        words = text if isinstance(text, str) else text(error.view or 0)
        raise NonFiniteLogits(error.position, model=model.name, text=words) from error
