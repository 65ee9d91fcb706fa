"""NTK-aware scaling whose base grows with the input (emozilla, 2023; Appendix B.2 of the YaRN paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.positions.rope.ntk import ntk_base
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


@dataclass(frozen=True, kw_only=True)
class DynamicNtk:
    """NTK-aware with alpha = s n / L0 - (s - 1) at n > L0 tokens of input; plain rope up to L0.

    Frequencies change while text is generated, and keys that are cached keep the old ones: with a cache the
    predictions beyond L0 differ from those without.
    """

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        tokens = factor * original_length if length is None else max(length, original_length)
        alpha = factor * tokens / original_length - (factor - 1) if factor > 1 else 1.0
        return plain_frequencies(ntk_base(theta, head_dim, alpha), head_dim).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """transformers' `dynamic`. It takes L0 from `max_position_embeddings`, which has to stay."""
        if factor == 1:
            return plain_config(theta)
        return {"rope_type": "dynamic", "rope_theta": theta, "factor": factor}
