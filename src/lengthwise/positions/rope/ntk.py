"""NTK-aware scaling with a fixed base (bloc97, 2023; Sec. 3.1 of the YaRN paper)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.errors import require
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


def ntk_base(theta: float, head_dim: int, alpha: float) -> float:
    """theta * alpha^(d/(d-2)): w_0 stays 1 and the last frequency becomes exactly w_last / alpha."""
    return theta * alpha ** (head_dim / (head_dim - 2))


@dataclass(frozen=True, kw_only=True)
class Ntk:
    """Plain frequencies of the base theta * alpha^(d/(d-2))."""

    alpha: float | None = None
    """None is the factor. The slowest frequencies are covered barely, so a little more is usual."""

    def __post_init__(self) -> None:
        require(self.alpha is None or self.alpha >= 1, f"alpha = {self.alpha}", "1 or more")

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        return plain_frequencies(self._base(theta, head_dim, factor), head_dim).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """A changed `rope_theta`, which every program that reads the model obeys."""
        return plain_config(self._base(theta, head_dim, factor))

    def _base(self, theta: float, head_dim: int, factor: float) -> float:
        return ntk_base(theta, head_dim, factor if self.alpha is None else self.alpha)
