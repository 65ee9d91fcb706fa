"""Rope methods with a closed formula, each a function of a `Rope` whose keywords are its options."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from lengthwise.errors import UsageError, require
from lengthwise.settings import Finite, Positive, Whole


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

        At factor 1 they are those of plain rope, unless options have changed it (`unchanged` is False).
        """
        if self.factor == 1 and unchanged:
            return {"rope_type": "default", "rope_theta": self.theta}
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


def plain_frequencies(theta: float, head_dim: int) -> Tensor:
    """w_k = theta^(-2k/d), float64 [d/2]."""
    return theta ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)


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

    It is 0 up to the frequency that turns `beta_fast` times over L0, 1 from that which turns `beta_slow` times;
    `truncate` rounds the two ends outwards to whole k, as YaRN's code does.
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


def position_interpolation(rope: Rope) -> ScaledRope:
    """w_k / s: the same as dividing positions by s.

    Chen et al. 2023, "Extending Context Window of Large Language Models via Positional Interpolation".
    """
    return ScaledRope(rope.frequencies() / rope.factor, rope.config("linear"))


def ntk(rope: Rope, *, alpha: Annotated[Finite, Ge(1)] | None = None) -> ScaledRope:
    """Plain frequencies of the base theta * alpha^(d/(d-2)) (bloc97, 2023; Sec. 3.1 of the YaRN paper).

    Args:
        alpha: None means the factor, which barely covers the slowest frequencies; a little more is usual.
    """
    base = ntk_base(rope.theta, rope.head_dim, rope.factor if alpha is None else alpha)
    return ScaledRope(rope.frequencies(base), {"rope_type": "default", "rope_theta": base})


def dynamic_ntk(rope: Rope) -> ScaledRope:
    """NTK-aware with alpha = s n / L0 - (s - 1) at n > L0 tokens of input; plain rope up to L0.

    Frequencies change while text is generated, but cached keys keep the old ones: beyond L0, predictions with a
    cache differ from those without. emozilla, 2023; Appendix B.2 of the YaRN paper.
    """
    tokens = max(rope.tokens, rope.original_length)
    alpha = rope.factor * tokens / rope.original_length - (rope.factor - 1) if rope.factor > 1 else 1.0
    # transformers reads L0 from `max_position_embeddings`, which must stay.
    config = rope.config("dynamic")
    return ScaledRope(rope.frequencies(ntk_base(rope.theta, rope.head_dim, alpha)), config)


def ntk_by_parts(rope: Rope) -> ScaledRope:
    """Two of YaRN's ramps: from NTK-aware to interpolated, and before that from plain to the result.

    With m(a, b) the ramp between a and b rotations over L0: x = ntk_k (1 - m(1.25, 0.75)) + (w_k / s) m(1.25, 0.75),
    then w_k (1 - m(16, 2)) + x m(16, 2). bloc97, 2023, before YaRN; `ntk-by-parts` in the code of the YaRN paper.
    """
    plain = rope.frequencies()
    scaled = rope.frequencies(ntk_base(rope.theta, rope.head_dim, rope.factor)).lerp(
        plain / rope.factor, slow_share(1.25, 0.75, rope)
    )
    return ScaledRope(plain.lerp(scaled, slow_share(16, 2, rope)), rope.config(None))


def yarn_scaling(factor: float, mscale: float = 1.0) -> float:
    """YaRN's factor on cos and sin: 0.1 mscale ln s + 1."""
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def yarn(
    rope: Rope,
    *,
    beta_fast: Positive = 32.0,
    beta_slow: Positive = 1.0,
    truncate: bool = True,
    attention_factor: Positive | None = None,
) -> ScaledRope:
    """(w_k / s) m_k + w_k (1 - m_k), m_k a ramp from 0 (fast) to 1 (slow); cos and sin times 0.1 ln s + 1.

    Peng et al. 2023, "YaRN: Efficient Context Window Extension of Large Language Models".

    Args:
        beta_fast: frequencies that turn at least this often over L0 stay as they are (beta in the paper).
        beta_slow: frequencies that turn at most this often are divided by the factor (alpha in the paper).
        truncate: round the two ends of the ramp outwards to whole k, as the paper's code does.
        attention_factor: factor on cos and sin; None is 0.1 ln s + 1.
    """
    plain, slow = rope.frequencies(), slow_share(beta_fast, beta_slow, rope, truncate=truncate)
    given = {} if attention_factor is None else {"attention_factor": attention_factor}
    config = rope.config(
        "yarn",
        unchanged=not given,
        # Without it, transformers takes the extended length.
        original_max_position_embeddings=rope.original_length,
        beta_fast=beta_fast,
        beta_slow=beta_slow,
        truncate=truncate,
        **given,
    )
    scaling = yarn_scaling(rope.factor) if attention_factor is None else attention_factor
    return ScaledRope(plain.lerp(plain / rope.factor, slow), config, scaling)


def yarn_revised(rope: Rope, *, beta_fast: Positive = 32.0, beta_slow: Positive = 1.0) -> ScaledRope:
    """w_k / ((1 - m_k) + s m_k): YaRN's ramp blends wavelengths where YaRN blends frequencies.

    The two differ by up to 36 % in the middle of the ramp (s = 4): do not run a model that was trained with
    one with the other. The "revised" YaRN of PoSE (Zhu et al. 2023) and CREAM (Wu et al. 2024).

    Args:
        beta_fast: as in YaRN.
        beta_slow: as in YaRN.
    """
    slow = slow_share(beta_fast, beta_slow, rope)
    frequencies = rope.frequencies() / (1 - slow + rope.factor * slow)
    return ScaledRope(frequencies, rope.config(None), yarn_scaling(rope.factor))


def llama3(rope: Rope, *, low_freq_factor: Positive = 1.0, high_freq_factor: Positive = 4.0) -> ScaledRope:
    """w_k ((1 - m) / s + m), with m = (r_k - low) / (high - low) cut to [0, 1] and r_k = L0 w_k / (2 pi).

    r_k is how often a frequency turns over the original length. Llama 3.1 (Meta, 2024, its model code).

    Args:
        low_freq_factor: frequencies that turn at most this often are divided by the factor.
        high_freq_factor: frequencies that turn at least this often stay as they are.
    """
    require(
        low_freq_factor <= high_freq_factor,
        f"low_freq_factor = {low_freq_factor}, high_freq_factor = {high_freq_factor}",
        "low_freq_factor not above high_freq_factor",
    )
    plain = rope.frequencies()
    rotations = rope.original_length * plain / (2 * math.pi)
    # Where both are the same (Llama 4), it is a step.
    fast = (rotations - low_freq_factor) / (high_freq_factor - low_freq_factor or 1e-9)
    config = rope.config(
        "llama3",
        original_max_position_embeddings=rope.original_length,
        low_freq_factor=low_freq_factor,
        high_freq_factor=high_freq_factor,
    )
    return ScaledRope((plain / rope.factor).lerp(plain, fast.clamp(0, 1)), config)


ADJUSTED_BASE = 500_000.0
"""The base of `abf` and `eabf` where none is given."""


def _adjusted(rope: Rope, theta: float | None) -> Rope:
    """With the given base; without one with 500000, or the model's own at factor 1."""
    return replace(rope, theta=theta or (ADJUSTED_BASE if rope.factor > 1 else rope.theta))


def abf(rope: Rope, *, theta: Annotated[Finite, Gt(1)] | None = None) -> ScaledRope:
    """Plain frequencies of another base. The factor only sets the length of the context.

    Adjusted base frequency (Xiong et al. 2023, "Effective Long-Context Scaling of Foundation Models").

    Args:
        theta: the base; None is the paper's 500000, if the model's is smaller (and the model's
            own at factor 1).
    """
    adjusted = _adjusted(rope, theta)
    return ScaledRope(adjusted.frequencies(), {"rope_type": "default", "rope_theta": adjusted.theta})


def eabf(
    rope: Rope,
    *,
    theta: Annotated[Finite, Gt(1)] | None = None,
    skip_layers: Annotated[Whole, Ge(0)] = 2,
) -> ScaledRope:
    """`abf`, and queries after rope times max(1, ln(i+1) / ln L0) at position i. A factor of 1 changes nothing.

    The queries are scaled elsewhere (`query_scale`), by position and layer.

    Entropy-aware adjusted base (Zhang et al. 2024, "Extending LLMs' Context Window with 100 Samples").

    Args:
        theta: the base; None is the released code's 500000, if the model's is smaller (and the model's
            own at factor 1).
        skip_layers: first layers whose queries are not scaled: 2 as the paper means it, 0 as the released code does
            it.
    """
    adjusted = _adjusted(rope, theta)
    require(
        rope.original_length >= 2, f"original_length = {rope.original_length}", "2 or more tokens for eabf"
    )
    # No configuration of transformers scales queries by position.
    return ScaledRope(adjusted.frequencies(), adjusted.config(None))


def longrope(
    rope: Rope,
    *,
    long_factor: tuple[Finite, ...] | None = None,
    short_factor: tuple[Finite, ...] | None = None,
    attention_factor: Positive | None = None,
) -> ScaledRope:
    """w_k / lambda_k; cos and sin times sqrt(1 + ln s / ln L0) (LongRoPE, Ding et al. 2024).

    Inputs of more than L0 tokens use the long factors, others the short ones; one choice for a whole batch.

    Args:
        long_factor: one lambda_k for each of the d/2 frequencies. There is no formula for them.
        short_factor: the same for inputs up to L0; None is all 1.
        attention_factor: factor on cos and sin at every length; None is sqrt(1 + ln s / ln L0).
    """
    count = rope.head_dim // 2
    if long_factor is None and rope.factor != 1:
        raise UsageError(
            "longrope has no long_factor",
            expected=f"{count} numbers, one for each frequency",
            fix="take them from a model card, or search them with examples/longrope_search.py",
        )
    for name, given in (("long_factor", long_factor), ("short_factor", short_factor)):
        require(
            given is None or (len(given) == count and min(given) >= 1),
            f"longrope's {name} has {len(given or ())} numbers, the least is {min(given or (), default=0):g}",
            f"{count} numbers of 1 or more, one for each frequency",
        )
    short, long = ([*(given or (1.0,) * count)] for given in (short_factor, long_factor))
    scaling = attention_factor
    if scaling is None:
        scaling = math.sqrt(1 + math.log(rope.factor) / math.log(rope.original_length))
    config = rope.config(
        "longrope",
        unchanged=(long_factor, short_factor, attention_factor) == (None, None, None),
        original_max_position_embeddings=rope.original_length,
        short_factor=short,
        long_factor=long,
        attention_factor=scaling,
    )
    divisors = torch.tensor(long if rope.tokens > rope.original_length else short, dtype=torch.float64)
    return ScaledRope(rope.frequencies() / divisors, config, scaling)
