"""Adjusted base frequency (Xiong et al. 2023, "Effective Long-Context Scaling of Foundation Models")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.errors import require
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


def adjusted_base(theta: float, given: float | None, factor: float) -> float:
    """The base in force: the given one; without it 500000, or the model's own at factor 1."""
    if given is not None:
        return given
    return 500_000.0 if factor > 1 else theta


@dataclass(frozen=True, kw_only=True)
class AdjustedBase:
    """Plain frequencies of another base. The factor only says how long the context is to be."""

    theta: float | None = None
    """The base; None is the paper's 500000 (and the model's own at factor 1)."""

    def __post_init__(self) -> None:
        require(self.theta is None or self.theta > 1, f"theta = {self.theta}", "above 1")

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`."""
        return plain_frequencies(adjusted_base(theta, self.theta, factor), head_dim).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """A changed `rope_theta`, which every program that reads the model obeys."""
        return plain_config(adjusted_base(theta, self.theta, factor))
