"""The "revised" YaRN of PoSE (Zhu et al. 2023) and CREAM (Wu et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.errors import require
from lengthwise.positions.rope.plain_rope import (
    plain_config,
    plain_frequencies,
    slow_share,
    yarn_attention_factor,
)


@dataclass(frozen=True, kw_only=True)
class RevisedYarn:
    """w_k / ((1 - m_k) + s m_k): YaRN's ramp blends wavelengths where YaRN blends frequencies.

    The two differ by up to 36 % in the middle of the ramp (s = 4), so a model trained with one must not be run
    with the other.
    """

    beta_fast: float = 32.0
    """As in YaRN."""
    beta_slow: float = 1.0
    """As in YaRN."""

    def __post_init__(self) -> None:
        require(
            0 < self.beta_slow < self.beta_fast,
            f"beta_slow = {self.beta_slow}, beta_fast = {self.beta_fast}",
            "0 < beta_slow < beta_fast",
        )

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        slow = slow_share(self.beta_fast, self.beta_slow, theta, head_dim, original_length)
        frequencies = plain_frequencies(theta, head_dim) / (1 - slow + factor * slow)
        return frequencies.float(), yarn_attention_factor(factor)

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """None: transformers' `yarn` is the other form."""
        return plain_config(theta) if factor == 1 else None
