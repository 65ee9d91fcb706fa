"""Position interpolation (Chen et al. 2023, "Extending Context Window ... via Positional Interpolation")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


@dataclass(frozen=True, kw_only=True)
class PositionInterpolation:
    """w_k / s: the same as dividing positions by s."""

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        return (plain_frequencies(theta, head_dim) / factor).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """transformers' `linear`."""
        if factor == 1:
            return plain_config(theta)
        return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
