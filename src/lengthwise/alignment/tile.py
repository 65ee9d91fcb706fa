"""The elementwise part of the fused objective, a few rows at a time: logits in, gradients out, in place.

For a pair of rows with logits z1, z2, p = softmax(z1) and q = softmax(z2), every divergence of the
objective has a gradient of one form (and the mirrored one for z2):

    d/dz1 = p * (k + s - <p, s>) - k * q

where k is 1 or 0 and s, the *score*, is a vector over the vocabulary:

    sce           k = 1   s = -z2
    jeffreys      k = 1   s = z1 - z2
    entropy       k = 0   s = -z1
    js            k = 0   s = (log p - log m) / 2, with m = (p + q) / 2
    kl            k = 1   s = 0                      (p - q: the other side is a fixed target)

The cross entropy adds w * (p - onehot(label)). Nothing changes when a constant is added to s or to the
logits of a row, so all is computed on logits minus the row's maximum: exp(z - logsumexp) would carry the
rounding of the logsumexp into every entry. Arithmetic is fp32 for 16-bit logits, in which p - q would be
mostly rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Rule:
    """k and s of one side: s = sign * source, or 0."""

    k: int
    source: str | None = None
    sign: int = 0


_FIXED_TARGET = (Rule(k=1), Rule(k=1))

# The long side's rule and the short side's. "difference" is z1 - z2 for both.
_RULES: dict[str, tuple[Rule, Rule]] = {
    "sce": (Rule(1, "other", -1), Rule(1, "other", -1)),
    "jeffreys": (Rule(1, "difference", 1), Rule(1, "difference", -1)),
    "entropy": (Rule(0, "own", -1), Rule(0, "own", -1)),
    "js": (Rule(0, "mixture", 1), Rule(0, "mixture", 1)),
    "kl": _FIXED_TARGET,
}


def gradient_rules(divergence: str, detach: str) -> tuple[Rule | None, Rule | None]:
    """The rules of the long and the short side; None for a side without gradient."""
    if detach == "both-targets":
        return _FIXED_TARGET
    long, short = _RULES[divergence]
    return (None if detach == "long" else long), (None if detach == "short" else short)


@dataclass(frozen=True)
class Activation:
    """From the head's linear output u to logits: z = soft_cap * tanh(scale * u / soft_cap), or scale * u."""

    scale: float = 1.0
    soft_cap: float | None = None

    def apply_(self, linear: Tensor, *, slope: Tensor | None = None) -> Tensor:
        """Turn `linear` into logits in place; `slope` receives dz/du / scale of a soft cap."""
        if self.soft_cap is None:
            return linear if self.scale == 1.0 else linear.mul_(self.scale)
        linear.mul_(self.scale / self.soft_cap).tanh_()
        if slope is not None:
            torch.mul(linear, linear, out=slope).neg_().add_(1.0)
        return linear.mul_(self.soft_cap)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype of the arithmetic on logits of `dtype`."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class _Statistics:
    @classmethod
    def concatenate(cls, parts: list[Self]) -> Self:
        """Of all rows together."""
        return cls(*(torch.cat([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    def to(self, dtype: torch.dtype) -> Self:
        """In another dtype."""
        return type(self)(*(getattr(self, field.name).to(dtype) for field in fields(self)))


@dataclass(frozen=True)
class PairStatistics(_Statistics):
    """What n pairs of rows came to, [n, 1] each. z' is z minus the row's maximum."""

    top_long: Tensor
    """max z1"""
    top_short: Tensor
    """max z2"""
    sum_long: Tensor
    """sum exp(z1')"""
    sum_short: Tensor
    """sum exp(z2')"""
    own_long: Tensor
    """<p, z1'>"""
    own_short: Tensor
    """<q, z2'>"""
    cross_long: Tensor
    """<p, z1' - z2'>"""
    cross_short: Tensor
    """<q, z1' - z2'>"""
    mixture: Tensor
    """The Jensen-Shannon divergence if it is the one asked for, else <p, z1'> again."""


@dataclass(frozen=True)
class RowStatistics(_Statistics):
    """What n single rows came to, [n, 1] each."""

    top: Tensor
    """max z"""
    sum: Tensor
    """sum exp(z')"""


class Tiles:
    """Works through rows of logits in tiles, with one set of scratch rows that stays in the cache.

    Args:
        rows: pairs in a tile.
        vocabulary: V.
        dtype: of the logits.
        device: of the logits.
        activation: from the head's linear output to logits.
        rules: of the long and the short side's gradient.
        weight: factor of the divergence's gradient.
        mixture: whether the Jensen-Shannon divergence is asked for.
        gradient: whether to write gradients over the logits.
    """

    def __init__(
        self,
        rows: int,
        vocabulary: int,
        *,
        dtype: torch.dtype,
        device: torch.device,
        activation: Activation,
        rules: tuple[Rule | None, Rule | None],
        weight: float,
        mixture: bool,
        gradient: bool,
    ) -> None:
        self._rows = rows
        self._activation = activation
        self._rules = rules
        self._weight = weight
        self._gradient = gradient
        self._mixture = mixture

        def scratch() -> Tensor:
            return torch.empty(rows, vocabulary, dtype=wide_dtype(dtype), device=device)

        self._p, self._q, self._difference, self._spare = scratch(), scratch(), scratch(), scratch()
        self._upcast = None if dtype == wide_dtype(dtype) else (scratch(), scratch())
        self._slopes = (scratch(), scratch()) if gradient and activation.soft_cap is not None else None

    def pairs(
        self,
        logits_long: Tensor,
        logits_short: Tensor,
        labels_long: Tensor,
        labels_short: Tensor,
        weights_long: Tensor,
        weights_short: Tensor,
    ) -> PairStatistics:
        """Rows [n, V] that face each other, labels and weights of their cross entropy [n, 1].

        The logits come as the head's linear output and leave as gradients with respect to it divided by the
        scale. A row without a label has weight 0 and any label.
        """
        tensors = (logits_long, logits_short, labels_long, labels_short, weights_long, weights_short)
        parts = zip(*(tensor.split(self._rows) for tensor in tensors), strict=True)
        return PairStatistics.concatenate([self._pair(*part) for part in parts])

    def rows(self, logits: Tensor, labels: Tensor, weights: Tensor) -> RowStatistics:
        """Rows [n, V] that have a cross entropy only; else as `pairs`."""
        parts = zip(*(tensor.split(self._rows) for tensor in (logits, labels, weights)), strict=True)
        return RowStatistics.concatenate([self._row(*part) for part in parts])

    def _row(self, logits: Tensor, labels: Tensor, weights: Tensor) -> RowStatistics:
        n = len(logits)
        z = logits if self._upcast is None else self._upcast[0][:n].copy_(logits)
        slope = None if self._slopes is None else self._slopes[0][:n]
        top = _subtract_maximum_(self._activation.apply_(z, slope=slope))
        total = z.exp_().sum(dim=-1, keepdim=True)
        if self._gradient:
            z.mul_(weights / total)
            _finish_(z, labels, weights, slope)
            if z is not logits:
                logits.copy_(z)
        return RowStatistics(top, total)

    def _pair(
        self,
        logits_long: Tensor,
        logits_short: Tensor,
        labels_long: Tensor,
        labels_short: Tensor,
        weights_long: Tensor,
        weights_short: Tensor,
    ) -> PairStatistics:
        n = len(logits_long)
        z1, z2 = logits_long, logits_short
        if self._upcast is not None:
            z1, z2 = self._upcast[0][:n].copy_(logits_long), self._upcast[1][:n].copy_(logits_short)
        slope1, slope2 = (None, None) if self._slopes is None else (self._slopes[0][:n], self._slopes[1][:n])
        p, q, difference, spare = self._p[:n], self._q[:n], self._difference[:n], self._spare[:n]

        top1 = _subtract_maximum_(self._activation.apply_(z1, slope=slope1))
        top2 = _subtract_maximum_(self._activation.apply_(z2, slope=slope2))
        sum1, sum2 = _softmax(z1, out=p), _softmax(z2, out=q)
        torch.sub(z1, z2, out=difference)
        own1, own2 = _dot(p, z1, spare), _dot(q, z2, spare)
        cross1, cross2 = _dot(p, difference, spare), _dot(q, difference, spare)
        mixture = own1
        sources1 = {"own": (z1, own1), "other": (z2, own1 - cross1), "difference": (difference, cross1)}
        sources2 = {"own": (z2, own2), "other": (z1, own2 + cross2), "difference": (difference, cross2)}
        if self._mixture:
            score1, score2 = _mixture_scores(difference, sum1, sum2)
            sources1["mixture"] = score1, _dot(p, score1, spare)
            sources2["mixture"] = score2, _dot(q, score2, spare)
            mixture = sources1["mixture"][1] + sources2["mixture"][1]

        if self._gradient:
            rule1, rule2 = self._rules
            self._write(spare, rule1, p, q, sources1, weights_long)
            # z1 and z2 are sources no longer needed once this one is written, which may be over either.
            self._write(z2, rule2, q, p, sources2, weights_short)
            _finish_(spare, labels_long, weights_long, slope1)
            _finish_(z2, labels_short, weights_short, slope2)
            logits_long.copy_(spare)
            if z2 is not logits_short:
                logits_short.copy_(z2)
        return PairStatistics(top1, top2, sum1, sum2, own1, own2, cross1, cross2, mixture)

    def _write(
        self,
        out: Tensor,
        rule: Rule | None,
        p: Tensor,
        q: Tensor,
        sources: dict[str, tuple[Tensor, Tensor]],
        weights: Tensor,
    ) -> None:
        """p * (w + a * (k + s - <p, s>)) - a * k * q for the side whose probabilities are p."""
        if rule is None:
            torch.mul(p, weights, out=out)
            return
        if rule.source is None:
            torch.mul(p, weights + self._weight * rule.k, out=out)
        else:
            source, mean = sources[rule.source]
            constant = torch.add(weights + self._weight * rule.k, mean, alpha=-self._weight * rule.sign)
            torch.add(constant, source, alpha=self._weight * rule.sign, out=out).mul_(p)
        if rule.k:
            out.add_(q, alpha=-self._weight)


def _subtract_maximum_(z: Tensor) -> Tensor:
    top = z.amax(dim=-1, keepdim=True)
    z.sub_(top)
    return top


def _softmax(shifted: Tensor, *, out: Tensor) -> Tensor:
    """softmax into `out`; returns its denominator."""
    total = torch.exp(shifted, out=out).sum(dim=-1, keepdim=True)
    out.div_(total)
    return total


def _dot(a: Tensor, b: Tensor, spare: Tensor) -> Tensor:
    """Row by row <a, b>. Not by a matrix product: users allow those to run in TF32."""
    return torch.mul(a, b, out=spare).sum(dim=-1, keepdim=True)


def _mixture_scores(difference: Tensor, sum1: Tensor, sum2: Tensor) -> tuple[Tensor, Tensor]:
    """(log p - log m) / 2 and (log q - log m) / 2, finite where p and q underflow."""
    log_ratio = difference - (sum1.log() - sum2.log())
    # log p - log m = log 2 - log(1 + q/p). The threshold past which softplus(x) is taken as x suits fp64.
    score1 = (math.log(2) - F.softplus(-log_ratio, threshold=40)) / 2
    return score1, score1 - log_ratio / 2


def _finish_(gradient: Tensor, labels: Tensor, weights: Tensor, slope: Tensor | None) -> None:
    gradient.scatter_add_(1, labels, -weights)
    if slope is not None:
        gradient.mul_(slope)
