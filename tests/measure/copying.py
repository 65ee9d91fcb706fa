"""Models that copy or count, as logits of given tokens, and texts with nothing else to copy, or that count up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from lengthwise.text import TokenDocument, TokenDocuments

VOCABULARY = 1024
Sees = Callable[[int, int], bool]
"""(tokens back, place) -> whether the model sees what is there."""


def copying(
    reach: int | Sees, *, vocabulary: int = 320, strength: float = 8.0, ahead: int = 1
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Logits that favour the token `ahead` of the last occurrence of the current one, if it is within `reach`."""
    sees: Sees = reach if callable(reach) else lambda back, _: back <= reach

    def logits(ids: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(*ids.shape, vocabulary)
        for sequence, line in zip(ids.tolist(), found, strict=True):
            last: dict[int, int] = {}
            for row, token in enumerate(sequence):
                if (
                    token in last
                    and sees(row - last[token], last[token])
                    and last[token] + ahead < len(sequence)
                ):
                    line[row, sequence[last[token] + ahead]] = strength
                last[token] = row
        return found

    return logits


def knowing(good: int = 1 << 40) -> Callable[[torch.Tensor], torch.Tensor]:
    """Logits that know the next number at the first `good` positions, and are sure of another one behind."""

    def logits(ids: torch.Tensor) -> torch.Tensor:
        right = torch.nn.functional.one_hot((ids + 1) % VOCABULARY, VOCABULARY) * 12.0
        right[:, good:] = right[:, good:].roll(1, dims=-1)
        return right

    return logits


def reading(
    fake: Any, logits: Callable[[torch.Tensor], torch.Tensor], *, vocabulary: int = VOCABULARY
) -> Any:
    """A `FakeModel` that is read from the beginning at every step."""
    model = fake(logits, vocabulary)
    model.config.rope_parameters = {"rope_type": "dynamic"}
    return model


def documents_of(texts: list[np.ndarray]) -> TokenDocuments:
    """Documents of given tokens."""
    documents = (TokenDocument(f"d{index}", text.astype(np.int32)) for index, text in enumerate(texts))
    return TokenDocuments(tuple(documents), "made", "corpus", "")


def without_repetition(*, count: int = 6, size: int = 700) -> TokenDocuments:
    """Documents in which no token comes twice: only the asked passage can be copied."""
    return documents_of(
        [np.random.default_rng(index).permutation(VOCABULARY)[:size] for index in range(count)]
    )


def counting(count: int) -> TokenDocuments:
    """Documents that count up, each from its own beginning."""
    return documents_of([(np.arange(700) + 40 * index) % VOCABULARY for index in range(count)])
