"""Queries that grow with the log of their position, so that attention stays as sharp over a longer context."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True, kw_only=True)
class QueryScale:
    """Queries after rope times max(1, ln(i+1) / ln L0) at position i, in training and at inference.

    EABF is this with another base (Zhang et al. 2024). CLEX's `log_scale`, off in its training script, is
    ln(n) / ln L0 for an input of n tokens, for all positions and without the lower limit.
    """

    original_length: int
    """L0: tokens of context up to which nothing changes."""
    skip_layers: int = 0
    """First layers whose queries are not scaled."""

    def __post_init__(self) -> None:
        require(self.original_length >= 2, f"original_length = {self.original_length}", "2 or more tokens")
        require(self.skip_layers >= 0, f"skip_layers = {self.skip_layers}", "0 or more")


def query_scale(position_ids: Tensor, original_length: int) -> Tensor:
    """max(1, ln(i+1) / ln L0) at position i: float32, the shape of `position_ids`."""
    return ((position_ids.float() + 1).log() / math.log(original_length)).clamp(min=1)
