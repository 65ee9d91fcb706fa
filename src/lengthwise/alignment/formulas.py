"""Eq. 1-4 as plain formulas on logits, and what each divergence is to the fused objective: all of it in one place.

p = softmax(logits_p) and q = softmax(logits_q) over the last axis, natural logarithms. 16-bit logits are taken to
fp32 first: in bf16 the result has three digits. Logits must be finite: 0 * log 0 of a vocabulary entry that is
masked with -inf is NaN, so cut such entries off instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.alignment.divergences import DIVERGENCES, Objective
from lengthwise.errors import require


def log_probabilities(logits: Tensor) -> Tensor:
    """log softmax over the last axis, in fp32 or fp64: [..., V] -> [..., V], nats. UsageError for whole numbers."""
    require(logits.is_floating_point(), f"the logits are {logits.dtype}", "a floating dtype")
    if logits.dtype in (torch.float16, torch.bfloat16):
        logits = logits.float()
    return logits.log_softmax(dim=-1)


def _check_shapes(logits_p: Tensor, logits_q: Tensor) -> None:
    """UsageError if they differ: one of [..., 1] would be taken for a vocabulary of ones."""
    shapes = f"the logits are {list(logits_p.shape)} and {list(logits_q.shape)}"
    require(logits_p.shape == logits_q.shape, shapes, "one shape [..., V]")


def cross_entropy(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """H(p, q) = -sum_v p_v log q_v: [..., V] twice -> [...], nats. The first argument is the target."""
    _check_shapes(logits_p, logits_q)
    return -(log_probabilities(logits_p).exp() * log_probabilities(logits_q)).sum(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """H(p) = -sum_v p_v log p_v: [..., V] -> [...], nats."""
    return cross_entropy(logits, logits)


def kl_divergence(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """KL(p||q) = sum_v p_v (log p_v - log q_v): [..., V] twice -> [...], nats."""
    _check_shapes(logits_p, logits_q)
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
    _check_shapes(logits_p, logits_q)
    log_p, log_q = log_probabilities(logits_p), log_probabilities(logits_q)
    log_m = torch.logaddexp(log_p, log_q) - math.log(2)
    return ((log_p.exp() * (log_p - log_m)).sum(dim=-1) + (log_q.exp() * (log_q - log_m)).sum(dim=-1)) / 2


def printed_symmetric_cross_entropy(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """H(q, p) + H(p), which the listing of Appendix D computes: [..., V] twice -> [...], nats. 2 H(p) at p = q."""
    return cross_entropy(logits_q, logits_p) + entropy(logits_p)


def entropy_sum(logits_p: Tensor, logits_q: Tensor) -> Tensor:
    """H(p) + H(q), the other part of SCE: [..., V] twice -> [...], nats."""
    return entropy(logits_p) + entropy(logits_q)


# What a tile finds of n pairs of rows is one tensor [4 or 5, n, 2, 1], whose third axis is (long, short):
#
#     top    max z                             own    <p, z1'>, <q, z2'>
#     total  sum exp(z'), z' = z - max z       cross  <p, z1' - z2'>, <q, z1' - z2'>
#     score  <p, s1>, <q, s2>, where the divergence's source is one of `SCORES`
#
# The functions on it sum over the pairs.


def entropy_of_pairs(found: Tensor) -> Tensor:
    """H(p) + H(q)."""
    _, total, own, *_ = found
    return (total.log() - own).sum()


def jeffreys_of_pairs(found: Tensor) -> Tensor:
    """KL(p||q) + KL(q||p)."""
    cross = found[3]
    return (cross[:, 0] - cross[:, 1]).sum()


def kl_of_pairs(found: Tensor, first: int) -> Tensor:
    """KL(p||q) with the long view's p as the first argument for 0, KL(q||p) for 1."""
    log_total, cross = found[1].log(), found[3]
    log_ratio = log_total[:, 0] - log_total[:, 1]
    return (cross[:, 0] - log_ratio if first == 0 else log_ratio - cross[:, 1]).sum()


def _printed_sce_of_pairs(found: Tensor) -> Tensor:
    """H(q, p) + H(p) = 2 log sum exp(z1') - <q, z1'> - <p, z1'>."""
    _, total, own, cross, *_ = found
    return (2 * total[:, 0].log() - own.sum(dim=1) - cross[:, 1]).sum()


Formula = tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, int], Tensor]]
"""The value of a divergence, of which its entry has the gradient: from logits and from what a tile has summed.

[..., V] twice -> [...], a detached teacher first; and the sum over pairs, given the detached side too, 0 for long.
"""

FORMULAS: dict[str, Formula] = {
    "sce": (symmetric_cross_entropy, lambda pairs, _: entropy_of_pairs(pairs) + jeffreys_of_pairs(pairs)),
    "printed_sce": (printed_symmetric_cross_entropy, lambda pairs, _: _printed_sce_of_pairs(pairs)),
    "jeffreys": (jeffreys, lambda pairs, _: jeffreys_of_pairs(pairs)),
    "js": (jensen_shannon, lambda pairs, _: pairs[4].sum()),
    "kl": (kl_divergence, kl_of_pairs),
    "reverse_kl": (
        lambda teacher, student: kl_divergence(student, teacher),
        lambda pairs, teacher: kl_of_pairs(pairs, 1 - teacher),
    ),
    "entropy": (entropy_sum, lambda pairs, _: entropy_of_pairs(pairs)),
}

_ONE_DIRECTION = {"sce": cross_entropy, "jeffreys": kl_divergence}
"""f with divergence = f(q, p) + f(p, q), of which "both-targets" detaches the first argument."""


def _mixture_scores(difference: Tensor, total: Tensor) -> Tensor:
    """(log p - log m) / 2 and (log q - log m) / 2 with m = (p + q) / 2, finite where p and q underflow."""
    log_total = total.log()
    log_ratio = difference - (log_total[:, :1] - log_total[:, 1:])
    # log p - log m = log 2 - log(1 + q/p). The threshold past which softplus(x) is taken as x suits fp64.
    return (math.log(2) - F.softplus(torch.cat((-log_ratio, log_ratio), dim=1), threshold=40)) / 2


# Sources of a divergence that need a pass of their own: from z1 - z2 [n, 1, V] and the sums of exp(z') [n, 2, 1] to
# the scores of both sides [n, 2, V].
SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"mixture": _mixture_scores}


def divergence_from_logits(logits_long: Tensor, logits_short: Tensor, objective: Objective) -> Tensor:
    """The term that alpha multiplies, per position: [..., V] twice -> [...], nats.

    p belongs to the long view, q to the short one. Of `objective` it reads the divergence and what is detached.
    """
    from_logits, _ = FORMULAS[objective.divergence]
    match objective.detach:
        case "both-targets":
            one_direction = _ONE_DIRECTION[objective.divergence]
            long_to_short = one_direction(logits_short.detach(), logits_long)
            return long_to_short + one_direction(logits_long.detach(), logits_short)
        case "long":
            return from_logits(logits_long.detach(), logits_short)
        # Without a detached side it has no teacher.
        case "short" if "none" in DIVERGENCES[objective.divergence].refused:
            return from_logits(logits_short.detach(), logits_long)
        case "short":
            return from_logits(logits_long, logits_short.detach())
        case _:
            return from_logits(logits_long, logits_short)
