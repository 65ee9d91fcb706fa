"""The distributions of a reading, a few rows at a time; and where a model gives logits that are not finite."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits, chunk_rows, locating_bad_logits, require_finite
from lengthwise.errors import require


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

        least, most = map(int, given.aminmax()) if len(given) else (0, 0)

        def losses(logits: Tensor, rows: slice) -> Tensor:
            # Of -100 torch gives 0.
            size = logits.shape[-1]
            require(
                least >= 0 and most < size,
                f"tokens {least} to {most} are to be predicted",
                f"0 to {size - 1}",
            )
            own = targets[rows.start - begin : rows.stop - begin]
            return torch.nn.functional.cross_entropy(logits, own, reduction="none")

        return self.score(losses, first=begin, end=begin + len(targets))


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


def finite_losses(
    model: str, log_p: Sequence[Sequence[float]], texts: Sequence[Sequence[int]]
) -> list[Tensor]:
    """-log p of the last tokens of each text; NonFiniteLogits where the server computes NaN or an infinity."""
    found = []
    for index, (values, tokens) in enumerate(zip(log_p, texts, strict=True)):
        made = -torch.tensor(values, dtype=torch.float64)
        if len(bad := (~made.isfinite()).nonzero()):
            raise NonFiniteLogits(len(tokens) - 1 - len(values) + int(bad[0]), model=model, view=index)
        found.append(made)
    return found
