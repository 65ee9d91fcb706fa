"""A model that copies, as logits of given tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch


def copying(
    reach: int, *, vocabulary: int = 320, strength: float = 8.0
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Logits that favour the token after the last occurrence of the current one, within `reach` tokens."""

    def logits(ids: torch.Tensor) -> torch.Tensor:
        found = torch.zeros(*ids.shape, vocabulary)
        for sequence, line in zip(ids.tolist(), found, strict=True):
            last: dict[int, int] = {}
            for row, token in enumerate(sequence):
                if token in last and row - last[token] <= reach:
                    line[row, sequence[last[token] + 1]] = strength
                last[token] = row
        return found

    return logits
