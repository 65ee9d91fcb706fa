"""Logits a chunk of rows at a time, so that memory does not grow with rows times vocabulary; and never NaN."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lengthwise.errors import LengthwiseError

if TYPE_CHECKING:
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
    """Add the model's name and the text to a `NonFiniteLogits` raised inside, unless it has them.

    Args:
        model: whose logits they are.
        text: in words; a function of the view where several are read together.
    """
    try:
        yield
    except NonFiniteLogits as error:
        if error.text is not None:
            raise
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
