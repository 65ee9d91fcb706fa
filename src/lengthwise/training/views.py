"""Where the two views of a step stand: sampled position ids, and which rows they leave to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.positions.sampling.sampler import PositionSampler, first_gap


@dataclass(frozen=True, kw_only=True)
class SampledPositions:
    """Position ids for windows: a sampler, and the length that its positions are to cover."""

    sampler: PositionSampler
    target_length: int
    """T, tokens."""

    def draw(self, seed: list[int], length: int) -> Tensor:
        """Position ids [L], a function of `seed` alone."""
        return self.sampler.draw(np.random.default_rng(seed), length, self.target_length)


def place_views(positions: Tensor, samples: int, *, views: str) -> dict[str, Any]:
    """What a batch of `samples` samples holds besides its tokens when its step has drawn `positions` [L].

    truncation: both views stand at the drawn positions. gap: the long view (the first B rows) stands at 0 .. L-1,
    the short view, which has the same tokens, at the drawn positions; `min_context` is then the first row after a
    gap, since all rows before it see the same in both views. Always with an attention mask of ones, without
    which transformers would split each row where its positions jump.

    Returns:
        `position_ids` and `attention_mask` [2B, L]; for gap also `min_context`.
    """
    rows = positions.expand(samples, -1)
    if views == "truncation":
        position_ids, extra = rows.repeat(2, 1), {}
    else:
        contiguous = torch.arange(len(positions), dtype=positions.dtype).expand(samples, -1)
        position_ids, extra = torch.cat([contiguous, rows]), {"min_context": first_gap(positions)}
    return {
        "position_ids": position_ids,
        "attention_mask": torch.ones_like(position_ids, dtype=torch.int64),
        **extra,
    }
