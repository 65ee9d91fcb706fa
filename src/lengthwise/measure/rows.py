"""Scores of rows of logits: distributions compared, losses of targets, losses at other temperatures.

A row is one prediction: the distribution over the next token. Callers take hidden states through the output
head in chunks of `chunk_rows` rows, so that memory does not grow with rows times vocabulary. The plain
formulas that these equal are those of `lengthwise.alignment.reference`. Nothing here takes gradients.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# fp32 logits in one chunk. Above 32 MiB the C allocator of Linux maps and clears new memory for every
# temporary, which made the elementwise work per row four times as slow on a CPU.
CHUNK_BYTES = 16 * 2**20
# The temperatures pass over the same logits some thirty times; on a CPU they should stay in its cache.
_BLOCK_BYTES = {"cpu": 2**19}


class NonFiniteRow(ArithmeticError):
    """Row `row` of those that were scored has logits that are NaN or infinite."""

    def __init__(self, row: int) -> None:
        self.row = row
        super().__init__(f"logits are not finite in row {row}")


@dataclass(frozen=True)
class Distributions:
    """Next-token distributions of N rows: log p and p [N, V], entropies [N] (nats), most likely tokens [N]."""

    log_p: Tensor
    p: Tensor
    entropy: Tensor
    top: Tensor

    @classmethod
    def of(cls, logits: Tensor) -> Distributions:
        """From logits [N, V].

        Raises:
            NonFiniteRow: NaN or an infinity in a row.
        """
        log_p = logits.log_softmax(dim=-1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(dim=-1)
        _require_finite(entropy)
        # Twice as fast as argmax on a CPU.
        return cls(log_p, p, entropy, log_p.max(dim=-1).indices)

    def __getitem__(self, rows: slice) -> Distributions:
        return Distributions(self.log_p[rows], self.p[rows], self.entropy[rows], self.top[rows])


@dataclass(frozen=True)
class PairScores:
    """N pairs of rows compared, each [N]: Jeffreys and Jensen-Shannon divergence (nats), same top token."""

    jeffreys: Tensor
    js: Tensor
    agreement: Tensor


def compare(a: Distributions, b: Distributions) -> PairScores:
    """Compare rows one to one: `a` holds p, `b` holds q.

    With d = log p - log q, Jeffreys is sum_v (p_v - q_v) d_v = KL(p||q) + KL(q||p); no term is negative, so
    a small value keeps its digits. Jensen-Shannon with m = (p + q) / 2 needs one softplus, because
    log m - log p = softplus(-d) - log 2 and log m - log q = that + d.
    """
    difference = a.log_p - b.log_p
    jeffreys = ((a.p - b.p) * difference).sum(dim=-1)
    mixture = torch.nn.functional.softplus(-difference).sub_(math.log(2))
    js = ((a.p + b.p) * mixture + b.p * difference).sum(dim=-1) / -2
    return PairScores(jeffreys, js, a.top == b.top)


def target_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p(label): logits [N, V], labels [N] -> [N], nats.

    Raises:
        NonFiniteRow: a loss is NaN or infinite.
    """
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    _require_finite(losses)
    return losses


def tempered_losses(logits: Tensor, labels: Tensor, inverse_temperatures: tuple[float, ...]) -> Tensor:
    """Loss at inverse temperatures b, with three derivatives by b: [N, V], [N] -> fp64 [N, G, 4], nats.

    loss(b) = log sum_v exp(b z_v) - b z_label. Its derivatives are E[z] - z_label, Var[z] and
    E[(z - E[z])^3], under softmax(b z).

    Raises:
        NonFiniteRow: NaN or an infinity in a row.
    """
    size = max(1, _BLOCK_BYTES.get(logits.device.type, CHUNK_BYTES) // (4 * logits.shape[-1]))
    blocks = [
        _tempered_block(logits[start : start + size], labels[start : start + size], inverse_temperatures)
        for start in range(0, len(logits), size)
    ]
    scores = torch.cat(blocks)
    _require_finite(scores.sum(dim=(1, 2)))
    return scores


def _tempered_block(logits: Tensor, labels: Tensor, inverse_temperatures: tuple[float, ...]) -> Tensor:
    # Relative to the top logit: exp cannot overflow, and the moments stay small numbers.
    z = logits - logits.amax(dim=-1, keepdim=True)
    target = z.gather(-1, labels[:, None])[:, 0].double()
    scores = []
    for b in inverse_temperatures:
        terms = (z * b).exp_()
        total = terms.sum(dim=-1).double()
        mean, square, cube = (terms.mul_(z).sum(dim=-1).double() / total for _ in range(3))
        variance = square - mean * mean
        skew = cube - 3 * mean * variance - mean**3
        scores.append(torch.stack([total.log() - b * target, mean - target, variance, skew], dim=-1))
    return torch.stack(scores, dim=1)


def chunk_rows(vocabulary: int) -> int:
    """Rows whose fp32 logits fit in `CHUNK_BYTES`, at least 1."""
    return max(1, CHUNK_BYTES // (4 * vocabulary))


def chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    """Consecutive slices of at most `chunk_rows` that cover 0 .. rows."""
    size = chunk_rows(vocabulary)
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def _require_finite(scores: Tensor) -> None:
    finite = torch.isfinite(scores)
    if not bool(finite.all()):
        raise NonFiniteRow(int((~finite).nonzero()[0, 0]))
