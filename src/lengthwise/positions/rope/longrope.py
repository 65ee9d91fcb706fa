"""LongRoPE (Ding et al. 2024): each frequency has its own factor, found by a search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import UsageError, require
from lengthwise.positions.rope.plain_rope import plain_config, plain_frequencies


@dataclass(frozen=True, kw_only=True)
class LongRope:
    """w_k / lambda_k; cos and sin times sqrt(1 + ln s / ln L0).

    Inputs of more than L0 tokens take the long factors, all others the short ones; a batch takes one of the two.
    """

    long_factor: tuple[float, ...] | None = None
    """lambda_k, one for each of the d/2 frequencies: there is no formula for them."""
    short_factor: tuple[float, ...] | None = None
    """The same for inputs up to L0; None is all 1."""
    attention_factor: float | None = None
    """Factor on cos and sin at every length; None is sqrt(1 + ln s / ln L0)."""

    def __post_init__(self) -> None:
        require(
            self.attention_factor is None or self.attention_factor > 0,
            f"attention_factor = {self.attention_factor}",
            "a positive number",
        )

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """See `RopeMethod`.

        Raises:
            UsageError: no long factors, or not one for each frequency.
        """
        short, long = self._factors(head_dim, factor)
        tokens = factor * original_length if length is None else length
        divisors = torch.tensor(long if tokens > original_length else short, dtype=torch.float64)
        return (plain_frequencies(theta, head_dim) / divisors).float(), self._scaling(original_length, factor)

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """transformers' `longrope`.

        Raises:
            UsageError: as `inverse_frequencies`.
        """
        if factor == 1 and self == LongRope():
            return plain_config(theta)
        short, long = self._factors(head_dim, factor)
        return {
            "rope_type": "longrope",
            "rope_theta": theta,
            "factor": factor,
            "original_max_position_embeddings": original_length,
            "short_factor": short,
            "long_factor": long,
            "attention_factor": self._scaling(original_length, factor),
        }

    def _scaling(self, original_length: int, factor: float) -> float:
        if self.attention_factor is not None:
            return self.attention_factor
        return math.sqrt(1 + math.log(factor) / math.log(original_length))

    def _factors(self, head_dim: int, factor: float) -> tuple[list[float], list[float]]:
        ones = [1.0] * (head_dim // 2)
        if self.long_factor is None and factor != 1:
            raise UsageError(
                "longrope has no long_factor",
                expected=f"{head_dim // 2} numbers, one for each frequency",
                fix="take them from a model card, or search them with lengthwise longrope-search",
            )
        for name, given in (("long_factor", self.long_factor), ("short_factor", self.short_factor)):
            if given is not None and (len(given) != len(ones) or not all(each >= 1 for each in given)):
                raise UsageError(
                    f"longrope's {name} has {len(given)} numbers, the least is {min(given, default=0):g}",
                    expected=f"{len(ones)} numbers of 1 or more, one for each frequency",
                )
        return list(self.short_factor or ones), list(self.long_factor or ones)
