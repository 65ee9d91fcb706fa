"""YaRN (Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models")."""

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
class Yarn:
    """(w_k / s) m_k + w_k (1 - m_k), m_k a ramp from 0 (fast) to 1 (slow); cos and sin times 0.1 ln s + 1."""

    beta_fast: float = 32.0
    """Frequencies that turn at least this often over L0 stay as they are (beta in the paper)."""
    beta_slow: float = 1.0
    """Frequencies that turn at most this often are divided by the factor (alpha in the paper)."""
    truncate: bool = True
    """Round the two ends of the ramp outwards to whole k, as the paper's code does."""
    attention_factor: float | None = None
    """Factor on cos and sin; None is 0.1 ln s + 1."""

    def __post_init__(self) -> None:
        require(
            0 < self.beta_slow < self.beta_fast,
            f"beta_slow = {self.beta_slow}, beta_fast = {self.beta_fast}",
            "0 < beta_slow < beta_fast",
        )
        require(
            self.attention_factor is None or self.attention_factor > 0,
            f"attention_factor = {self.attention_factor}",
            "a positive number",
        )

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        plain = plain_frequencies(theta, head_dim)
        slow = slow_share(
            self.beta_fast, self.beta_slow, theta, head_dim, original_length, truncate=self.truncate
        )
        scaling = yarn_attention_factor(factor) if self.attention_factor is None else self.attention_factor
        return plain.lerp(plain / factor, slow).float(), scaling

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """transformers' `yarn`, with the original length always stated (it would take the extended one)."""
        if factor == 1 and self.attention_factor is None:
            return plain_config(theta)
        parameters: dict[str, Any] = {
            "rope_type": "yarn",
            "rope_theta": theta,
            "factor": factor,
            "original_max_position_embeddings": original_length,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "truncate": self.truncate,
        }
        if self.attention_factor is not None:
            parameters["attention_factor"] = self.attention_factor
        return parameters
