"""Rows of hidden states scored chunk by chunk: losses of targets, and the one error for logits that are not finite.

A row is one prediction: the distribution over the next token. Hidden states go through the output head a chunk at
a time, so memory does not grow with rows times vocabulary. Nothing here takes gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import LengthwiseError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models.loading import LoadedModel
    from lengthwise.models.predictor import Predictor

# fp32 logits in one chunk. Above 32 MiB the C allocator of Linux maps and clears new memory for every
# temporary, which made the elementwise work per row four times as slow on a CPU.
CHUNK_BYTES = 16 * 2**20


class NonFiniteLogits(LengthwiseError):
    """Logits that are NaN or infinite.

    Attributes:
        position: row or token position, counted from where the code that raised it began.
        model: the model's name, once it is known.
        text: the text in words, once it is known.
        view: which of several views that were read together, where the code that raised it knows.
    """

    def __init__(
        self, position: int, *, model: str | None = None, text: str | None = None, view: int | None = None
    ) -> None:
        self.position, self.model, self.text, self.view = position, model, text, view
        where = f"at position {position}" + (f" of {text}" if text else "")
        super().__init__(
            f"{model or 'the model'} gives logits that are NaN or infinite {where}",
            expected="finite logits",
            fix="check the weights, or load the model with dtype float32",
        )


@contextmanager
def naming_bad_logits(model: Predictor, text: str | Callable[[int], str]) -> Iterator[None]:
    """Add the model's name and the text to a `NonFiniteLogits` raised inside.

    Args:
        model: whose logits they are.
        text: in words; a function of the view where several are read together.
    """
    try:
        yield
    except NonFiniteLogits as error:
        words = text if isinstance(text, str) else text(error.view or 0)
        raise NonFiniteLogits(error.position, model=model.name, text=words) from error


def require_finite(scores: Tensor) -> None:
    """Raise NonFiniteLogits with the first row of `scores` [N, ...] that holds NaN or an infinity."""
    finite = torch.isfinite(scores).flatten(1).all(dim=1) if scores.ndim > 1 else torch.isfinite(scores)
    if not bool(finite.all()):
        raise NonFiniteLogits(int((~finite).nonzero()[0, 0]))


def chunk_rows(vocabulary: int) -> int:
    """Rows whose fp32 logits fit in `CHUNK_BYTES`, at least 1."""
    return max(1, CHUNK_BYTES // (4 * vocabulary))


def chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Consecutive slices of at most `chunk_rows` that cover 0 .. rows."""
    size = chunk_rows(vocabulary)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


@torch.no_grad()
def score_rows(
    model: LoadedModel, hidden: Tensor, score: Callable[[Tensor, slice], Tensor], *, first: int = 0
) -> Tensor:
    """`score` of every row, a chunk of logits at a time: fp64 [N, ...], on the CPU.

    Args:
        model: whose head takes the rows.
        hidden: what `model.hidden_states` gives, [N, ...].
        score: (logits [n, V], the slice of rows they are of) -> [n, ...].
        first: position of the first row in the text, for errors.

    Raises:
        NonFiniteLogits: a score is NaN or infinite; its position counts from `first`.
    """
    parts = []
    for some in list(chunks(len(hidden), model.vocab_size)) or [slice(0, 0)]:
        try:
            scores = score(model.head.logits(hidden[some]), some)
            require_finite(scores)
        except NonFiniteLogits as error:
            raise NonFiniteLogits(first + some.start + error.position) from error
        parts.append(scores.cpu().double())
    return torch.cat(parts)


def target_losses(
    model: LoadedModel, hidden: Tensor, labels: NDArray[np.integer] | Tensor, *, first: int = 0
) -> Tensor:
    """-log p(label) of every row: fp64 [N], nats, on the CPU.

    Args:
        model: whose head takes the rows.
        hidden: what `model.hidden_states` gives, [N, ...].
        labels: the token that follows each row, [N].
        first: position of the first row in the text, for errors.

    Raises:
        NonFiniteLogits: a loss is NaN or infinite; its position counts from `first`.
    """
    # A copy: documents are read-only views of the token cache, which torch does not take.
    targets = labels if isinstance(labels, Tensor) else torch.from_numpy(np.array(labels, dtype=np.int64))
    targets = targets.to(hidden.device)

    def losses(logits: Tensor, some: slice) -> Tensor:
        return torch.nn.functional.cross_entropy(logits, targets[some], reduction="none")

    return score_rows(model, hidden, losses, first=first)
