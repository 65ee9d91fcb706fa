"""CLEX (Chen et al. 2023, "CLEX: Continuous Length Extrapolation for Large Language Models")."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from lengthwise.positions.rope.method import plain_config, plain_frequencies, require
from lengthwise.positions.rope.ntk import ntk_base


@dataclass(frozen=True, kw_only=True)
class Clex:
    """Frequencies that solve a learned differential equation in t, the share of L0 that the input takes.

    t = ceil(n / L0), at most s, for an input whose last position is n - 1; see `ClexFrequencies` for the equation.
    Before training it is NTK-aware scaling with alpha = 2t - 1.
    """

    param_factor: float = 1.0
    """Width of the hidden layer as a multiple of d; the layer has param_factor * d * d weights."""
    step: float = 0.25
    """Largest step in t of the solver."""

    def __post_init__(self) -> None:
        require(self.param_factor > 0, f"param_factor = {self.param_factor}", "a positive number")
        require(0 < self.step <= 1, f"step = {self.step}", "above 0, at most 1")

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """Before training; see `RopeMethod`."""
        t = float(factor) if length is None else clex_time(length, original_length, factor)
        return plain_frequencies(ntk_base(theta, head_dim, 2 * t - 1), head_dim).float(), 1.0

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """None: the frequencies are learned."""
        return plain_config(theta) if factor == 1 else None


def clex_time(length: int, original_length: int, factor: float) -> float:
    """t = ceil(n / L0), at least 1 and at most s."""
    return float(min(max(-(-length // original_length), 1), factor))
