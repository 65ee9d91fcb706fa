"""What a rope method answers, and the plain frequencies that all of them start from."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from torch import Tensor


class RopeMethod(Protocol):
    """A rope method: a frozen dataclass whose fields are its options.

    Notation: d = head_dim (its rotated part), w_k = theta^(-2k/d) for k = 0..d/2-1, L0 = original_length
    (tokens), s = factor. A factor of 1 means unchanged.
    """

    def inverse_frequencies(
        self,
        theta: float,
        head_dim: int,
        original_length: int,
        factor: float,
        *,
        length: int | None = None,
    ) -> tuple[Tensor, float]:
        """Frequencies [d/2] in radians a token, float32, and the factor on cos and sin.

        Attention logits scale with the square of that factor.

        Args:
            theta: the model's base.
            head_dim: d, the part of each head that is rotated.
            original_length: L0, context in tokens that the model was trained for.
            factor: s, how many times longer the context becomes.
            length: tokens of the input, for methods that depend on it; None is the whole of s * L0.
        """
        ...

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """`rope_parameters` with which plain transformers does the same; None where it cannot."""
        ...


def plain_frequencies(theta: float, head_dim: int) -> Tensor:
    """w_k = theta^(-2k/d), float64 [d/2]."""
    return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def plain_config(theta: float) -> dict[str, Any]:
    """`rope_parameters` of rope without extension."""
    return {"rope_type": "default", "rope_theta": theta}


def turning_dimension(rotations: float, theta: float, head_dim: int, original_length: int) -> float:
    """Index k of the frequency that turns `rotations` times over the original length.

    c(r) = d ln(L0 / (2 pi r)) / (2 ln theta): the solution of L0 w_k = 2 pi r.
    """
    return head_dim * math.log(original_length / (2 * math.pi * rotations)) / (2 * math.log(theta))


def slow_share(
    fast: float, slow: float, theta: float, head_dim: int, original_length: int, *, truncate: bool = True
) -> Tensor:
    """YaRN's ramp over the frequencies [d/2]: 0 for fast ones, 1 for slow ones, linear in k between.

    Args:
        fast: up to the frequency that turns this often over L0, the ramp is 0.
        slow: from the frequency that turns this often, the ramp is 1.
        truncate: round the two ends outwards to whole k, as YaRN's code does.
    """
    low = turning_dimension(fast, theta, head_dim, original_length)
    high = turning_dimension(slow, theta, head_dim, original_length)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # The original compares indices of pairs with d - 1; for heads of ordinary size it makes no difference.
    low, high = max(low, 0), min(high, head_dim - 1)
    width = high - low or 0.001
    return ((torch.arange(head_dim // 2, dtype=torch.float64) - low) / width).clamp(0, 1)


def yarn_attention_factor(factor: float) -> float:
    """0.1 ln s + 1: YaRN's factor on cos and sin; 1 without extension."""
    return 0.1 * math.log(factor) + 1 if factor > 1 else 1.0
