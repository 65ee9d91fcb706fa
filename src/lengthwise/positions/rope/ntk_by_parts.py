"""NTK-by-parts as it was before YaRN (bloc97, 2023; `ntk-by-parts` in the code of the YaRN paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.positions.rope.ntk import ntk_base
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies, slow_share


@dataclass(frozen=True, kw_only=True)
class NtkByParts:
    """Two of YaRN's ramps: from NTK-aware to interpolated, and before that from plain to the result.

    With m(a, b) the ramp between a and b rotations over L0: x = ntk_k (1 - m(1.25, 0.75)) + (w_k / s) m(1.25, 0.75),
    then w_k (1 - m(16, 2)) + x m(16, 2). No attention factor.
    """

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        plain = plain_frequencies(theta, head_dim)
        ntk = plain_frequencies(ntk_base(theta, head_dim, factor), head_dim)
        slow = slow_share(1.25, 0.75, theta, head_dim, original_length)
        scaled = ntk.lerp(plain / factor, slow)
        return plain.lerp(scaled, slow_share(16, 2, theta, head_dim, original_length)).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """None: transformers has no such rope type."""
        return plain_config(theta) if factor == 1 else None
