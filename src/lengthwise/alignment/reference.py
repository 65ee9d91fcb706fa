"""Eq. 1-4 as plain formulas on logits: what the fused form equals, and the way without a known head.

p = softmax(logits_p) and q = softmax(logits_q) over the last axis, natural logarithms, 16-bit logits taken to
fp32 first (in bf16 the result has three digits). Logits must be finite: 0 * log 0 of a vocabulary entry
that is masked with -inf is NaN, so cut such entries off instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.alignment.checks import (
    Divisors,
    check_labels,
    check_logits,
    check_same_shape,
    check_term,
    warn_of_sharpening,
)
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.output import AlignmentOutput, Normalizers


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the last axis, in fp32 or fp64: [..., V] -> [..., V], nats."""
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.log_softmax(dim=-1)


def cross_entropy(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """H(p, q) = -sum_v p_v log q_v: [..., V] twice -> [...], nats. The first argument is the target."""
    return -(log_probabilities(logits_p).exp() * log_probabilities(logits_q)).sum(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -sum_v p_v log p_v: [..., V] -> [...], nats."""
    return cross_entropy(logits, logits)


def kl_divergence(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL(p||q) = sum_v p_v (log p_v - log q_v): [..., V] twice -> [...], nats."""
    log_p, log_q = log_probabilities(logits_p), log_probabilities(logits_q)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def symmetric_cross_entropy(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """SCE(p, q) = H(q, p) + H(p, q), the two directions summed (Eq. 1): [..., V] twice -> [...], nats.

    Equals H(p) + H(q) + KL(p||q) + KL(q||p), so it is entropy plus disagreement: at p = q it is 2 H(p), not
    0.
    """
    return cross_entropy(logits_q, logits_p) + cross_entropy(logits_p, logits_q)


def jeffreys(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL(p||q) + KL(q||p), the disagreement in SCE: [..., V] twice -> [...], nats. 0 at p = q."""
    return kl_divergence(logits_p, logits_q) + kl_divergence(logits_q, logits_p)


def jensen_shannon(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL(p||m)/2 + KL(q||m)/2 with m = (p + q)/2: [..., V] twice -> [...], nats. At most log 2.

    For p close to q it is an eighth of `jeffreys`.
    """
    log_p, log_q = log_probabilities(logits_p), log_probabilities(logits_q)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return ((log_p.exp() * (log_p - log_m)).sum(dim=-1) + (log_q.exp() * (log_q - log_m)).sum(dim=-1)) / 2


def _entropy_sum(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    return entropy(logits_p) + entropy(logits_q)


_FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sce": symmetric_cross_entropy,
    "jeffreys": jeffreys,
    "js": jensen_shannon,
    "kl": kl_divergence,
    "entropy": _entropy_sum,
}

# Each is a sum of two directions, here (target, prediction), of which "both-targets" detaches the first.
_DIRECTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "sce": cross_entropy,
    "jeffreys": kl_divergence,
}


def divergence_from_logits(
    logits_long: Tensor, logits_short: Tensor, *, divergence: str = "sce", detach: str = "none"
) -> Tensor:
    """The term that alpha multiplies, per position: [..., V] twice -> [...], nats.

    `divergence` and `detach` as in `alignment_loss`; p belongs to the long view, q to the short one.
    """
    check_term(divergence, detach)
    if detach == "both-targets":
        direction = _DIRECTIONS[divergence]
        return direction(logits_short.detach(), logits_long) + direction(logits_long.detach(), logits_short)
    if detach == "long":
        return _FORMULAS[divergence](logits_long.detach(), logits_short)
    if detach == "short" and divergence == "kl":
        return kl_divergence(logits_short.detach(), logits_long)
    if detach == "short":
        return _FORMULAS[divergence](logits_long, logits_short.detach())
    return _FORMULAS[divergence](logits_long, logits_short)


def alignment_loss_from_logits(
    logits_long: Tensor,
    logits_short: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    alpha: float,
    divergence: str = "sce",
    detach: str = "none",
    normalizers: Normalizers | None = None,
    ignore_index: int = -100,
) -> AlignmentOutput:
    """The objective (Eq. 4) from full logits; equals `alignment_loss` on the hidden states that gave them.

    Holds several tensors of the logits' size. Use it where the output head cannot be reproduced, and as the
    truth that the fused path is held against.

    Args:
        logits_long, logits_short: [B, L, V] of both views, any floating dtype, finite.
        labels_long, labels_short, geometry, alpha, divergence, detach, normalizers, ignore_index: as in
            `alignment_loss`.

    Raises:
        UsageError: as in `alignment_loss`.
    """
    check_term(divergence, detach, alpha=alpha)
    warn_of_sharpening(divergence, detach, alpha)
    check_logits(logits_long, logits_short)
    check_same_shape(logits_long, labels_long, labels_short, geometry)
    vocabulary = logits_long.shape[-1]
    count_long = check_labels("labels_long", labels_long, vocabulary=vocabulary, ignore_index=ignore_index)
    count_short = check_labels("labels_short", labels_short, vocabulary=vocabulary, ignore_index=ignore_index)
    paired = logits_long.shape[0] * geometry.paired_positions
    divisors = Divisors.of(normalizers, count_long, count_short, paired)

    def side(logits: Tensor, labels: Tensor, divisor: float) -> Tensor:
        log_p = log_probabilities(logits).flatten(0, 1)
        return F.nll_loss(log_p, labels.flatten(), ignore_index=ignore_index, reduction="sum") / divisor

    cross_entropy_long = side(logits_long, labels_long, divisors.labels_long)
    cross_entropy_short = side(logits_short, labels_short, divisors.labels_short)

    paired_long = logits_long[:, geometry.long_rows]
    paired_short = logits_short[:, geometry.short_rows]

    def mean(per_position: Tensor) -> Tensor:
        return per_position.sum() / divisors.paired_positions

    term = mean(divergence_from_logits(paired_long, paired_short, divergence=divergence, detach=detach))
    with torch.no_grad():
        entropy_part = mean(_entropy_sum(paired_long, paired_short))
        jeffreys_part = mean(jeffreys(paired_long, paired_short))
    loss = (cross_entropy_long + cross_entropy_short) / 2 + alpha * term
    return AlignmentOutput(
        loss=loss,
        cross_entropy=((cross_entropy_long + cross_entropy_short) / 2).detach(),
        cross_entropy_long=cross_entropy_long.detach(),
        cross_entropy_short=cross_entropy_short.detach(),
        misalignment=entropy_part + jeffreys_part,
        entropy=entropy_part,
        jeffreys=jeffreys_part,
        divergence=term.detach(),
        paired_positions=paired,
        label_positions_long=count_long,
        label_positions_short=count_short,
    )
