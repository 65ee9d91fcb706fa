"""The rope of Llama 3.1 (Meta, 2024, its model code)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.errors import require
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


@dataclass(frozen=True, kw_only=True)
class Llama3:
    """w_k ((1 - m) / s + m), with m = (r_k - low) / (high - low) cut to [0, 1] and r_k = L0 w_k / (2 pi).

    r_k is how often a frequency turns over the original length.
    """

    low_freq_factor: float = 1.0
    """Frequencies that turn at most this often are divided by the factor."""
    high_freq_factor: float = 4.0
    """Frequencies that turn at least this often stay as they are."""

    def __post_init__(self) -> None:
        require(
            0 < self.low_freq_factor < self.high_freq_factor,
            f"low_freq_factor = {self.low_freq_factor}, high_freq_factor = {self.high_freq_factor}",
            "0 < low_freq_factor < high_freq_factor",
        )

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        plain = plain_frequencies(theta, head_dim)
        rotations = original_length * plain / (2 * math.pi)
        fast = (rotations - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        return (plain / factor).lerp(plain, fast.clamp(0, 1)).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """transformers' `llama3`."""
        if factor == 1:
            return plain_config(theta)
        return {
            "rope_type": "llama3",
            "rope_theta": theta,
            "factor": factor,
            "original_max_position_embeddings": original_length,
            "low_freq_factor": self.low_freq_factor,
            "high_freq_factor": self.high_freq_factor,
        }
