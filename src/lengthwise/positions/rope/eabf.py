"""EABF, entropy-aware adjusted base (Zhang et al. 2024, "Extending LLMs' Context Window with 100 Samples")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.errors import require
from lengthwise.positions.rope.abf import adjusted_base
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


@dataclass(frozen=True, kw_only=True)
class EntropyAwareBase:
    """Plain frequencies of another base; after rope, queries times max(1, ln(i+1) / ln L0) at position i.

    The factor only says how long the context is to be. At factor 1 nothing changes.
    """

    theta: float | None = None
    """The base; None is the released code's 500000 (and the model's own at factor 1)."""
    skip_layers: int = 2
    """First layers whose queries are not scaled: 2 as the paper means it, 0 as the released code does it."""

    def __post_init__(self) -> None:
        require(self.theta is None or self.theta > 1, f"theta = {self.theta}", "above 1")
        require(self.skip_layers >= 0, f"skip_layers = {self.skip_layers}", "0 or more")

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`. The query scaling is apart (`QueryScale`): it depends on the position and the layer."""
        return plain_frequencies(adjusted_base(theta, self.theta, factor), head_dim).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """None: no configuration of transformers scales queries by position."""
        return plain_config(adjusted_base(theta, self.theta, factor)) if factor == 1 else None
