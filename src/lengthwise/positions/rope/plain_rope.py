"""What a rope method is, and the plain rope that all methods start from."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.errors import require


@dataclass(frozen=True)
class Rope:
    """A model's rope, and by how much its context is extended.

    Notation: d = head_dim, w_k = theta^(-2k/d) for k = 0..d/2-1, L0 = original_length, s = factor.
    """

    theta: float
    """The model's base."""
    head_dim: int
    """d, the part of each head that is rotated."""
    original_length: int
    """L0, context in tokens that the model was trained for."""
    factor: float
    """s, how many times longer the context becomes; 1 means unchanged."""
    length: int | None = None
    """Tokens of the input, for methods that depend on it; None means s * L0."""

    @property
    def tokens(self) -> float:
        """Tokens of the input."""
        return self.factor * self.original_length if self.length is None else self.length

    def frequencies(self, theta: float | None = None) -> Tensor:
        """Plain frequencies [d/2] of this or another base, float64."""
        return plain_frequencies(self.theta if theta is None else theta, self.head_dim)

    def config(
        self, rope_type: str | None, *, unchanged: bool = True, **parameters: Any
    ) -> dict[str, Any] | None:
        """The `rope_parameters` of transformers' `rope_type`; None if it has no such type.

        At factor 1 they are those of plain rope, unless options have changed it.
        """
        if self.factor == 1 and unchanged:
            return plain_config(self.theta)
        if rope_type is None:
            return None
        return {"rope_type": rope_type, "rope_theta": self.theta, "factor": self.factor, **parameters}


class ScaledRope(NamedTuple):
    """What a rope method makes of a `Rope`."""

    frequencies: Tensor
    """[d/2] in radians per token, float64."""
    config: dict[str, Any] | None
    """The `rope_parameters` with which plain transformers computes the same; None if it cannot."""
    scaling: float = 1.0
    """Factor on cos and sin; attention logits scale with its square."""


@dataclass(frozen=True)
class RopeMethod:
    """A rope method with its options: a function of a `Rope` whose keywords are the options."""

    formula: Callable[..., ScaledRope]
    options: Mapping[str, Any]

    def inverse_frequencies(
        self, theta: float, head_dim: int, original_length: int, factor: float, *, length: int | None = None
    ) -> tuple[Tensor, float]:
        """Frequencies [d/2] in radians per token, float32, and the factor on cos and sin. Arguments as of `Rope`."""
        rope = Rope(theta, head_dim, original_length, factor, length)
        frequencies, _, scaling = self.formula(rope, **self.options)
        return frequencies.float(), scaling

    def to_hf_config(
        self, theta: float, head_dim: int, original_length: int, factor: float
    ) -> dict[str, Any] | None:
        """The `rope_parameters` with which plain transformers computes the same; None if it cannot."""
        return self.formula(Rope(theta, head_dim, original_length, factor), **self.options).config


def plain_frequencies(theta: float, head_dim: int) -> Tensor:
    """w_k = theta^(-2k/d), float64 [d/2]."""
    return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


def plain_config(theta: float) -> dict[str, Any]:
    """The `rope_parameters` of rope without extension."""
    return {"rope_type": "default", "rope_theta": theta}


def ntk_base(theta: float, head_dim: int, alpha: float) -> float:
    """theta * alpha^(d/(d-2)): w_0 stays 1 and the last frequency becomes exactly w_last / alpha."""
    return theta * alpha ** (head_dim / (head_dim - 2))


def turning_dimension(rotations: float, theta: float, head_dim: int, original_length: int) -> float:
    """Index k of the frequency that turns `rotations` times over the original length.

    c(r) = d ln(L0 / (2 pi r)) / (2 ln theta): the solution of L0 w_k = 2 pi r.
    """
    return head_dim * math.log(original_length / (2 * math.pi * rotations)) / (2 * math.log(theta))


def slow_share(beta_fast: float, beta_slow: float, rope: Rope, *, truncate: bool = True) -> Tensor:
    """YaRN's ramp over the frequencies [d/2]: 0 for fast ones, 1 for slow ones, linear in k between.

    Args:
        beta_fast: up to the frequency that turns this often over L0, the ramp is 0.
        beta_slow: from the frequency that turns this often, the ramp is 1.
        rope: the model's.
        truncate: round the two ends outwards to whole k, as YaRN's code does.
    """
    require(
        beta_slow < beta_fast,
        f"beta_slow = {beta_slow}, beta_fast = {beta_fast}",
        "beta_slow below beta_fast",
    )
    low, high = (
        turning_dimension(rotations, rope.theta, rope.head_dim, rope.original_length)
        for rotations in (beta_fast, beta_slow)
    )
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # The original compares indices of pairs with d - 1; for heads of ordinary size it makes no difference.
    low, high = max(low, 0), min(high, rope.head_dim - 1)
    width = high - low or 0.001
    return ((torch.arange(rope.head_dim // 2, dtype=torch.float64) - low) / width).clamp(0, 1)
