"""Next-token distributions compared: with each other, with less context, at other temperatures.

A row is one prediction: the distribution over the next token. `lengthwise.alignment.formulas` has the plain
formulas that these equal. Nothing here takes gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import NonFiniteLogits, require_finite

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.subjects import Rows

# The temperatures pass over the same logits some thirty times; on a CPU they should stay in its cache.
_BLOCK_BYTES = 2**19


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
            NonFiniteLogits: NaN or an infinity in a row.
        """
        log_p = logits.log_softmax(dim=-1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(dim=-1)
        require_finite(entropy)
        # Twice as fast as argmax on a CPU.
        return cls(log_p, p, entropy, log_p.max(dim=-1).indices)

    def __getitem__(self, rows: slice) -> Distributions:
        return Distributions(self.log_p[rows], self.p[rows], self.entropy[rows], self.top[rows])


def compare(a: Distributions, b: Distributions) -> Tensor:
    """Jeffreys and Jensen-Shannon divergence (nats) and whether the top tokens are the same, row by row: [3, N].

    `a` holds p, `b` holds q. With d = log p - log q, Jeffreys is sum_v (p_v - q_v) d_v = KL(p||q) + KL(q||p); no
    term is negative, so a small value keeps its digits. Jensen-Shannon with m = (p + q) / 2 needs one softplus,
    because log m - log p = softplus(-d) - log 2 and log m - log q = that + d.
    """
    difference = a.log_p - b.log_p
    jeffreys = ((a.p - b.p) * difference).sum(dim=-1)
    mixture = torch.nn.functional.softplus(-difference).sub_(math.log(2))
    js = ((a.p + b.p) * mixture + b.p * difference).sum(dim=-1) / -2
    return torch.stack([jeffreys, js, (a.top == b.top).to(js.dtype)])


@torch.no_grad()
def compare_contexts(whole: Rows, cut: Rows, labels: NDArray[np.integer], *, first: int = 0) -> Tensor:
    """Loss with all context, loss with its end alone, Jeffreys of the two predictions: fp64 [N, 3], nats.

    Args:
        whole: rows with all context; those from `first` on count.
        cut: the last N rows of it have the end of their context.
        labels: [N], the tokens that follow them.
        first: the first row of `whole`.

    Raises:
        NonFiniteLogits: with the row of `whole`.
    """
    targets = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(cut.device)[:, None]
    before = len(cut) - len(targets)
    parts = []
    for some in cut.chunks(before):
        begin, end = some.start - before, some.stop - before
        log_q = cut.log_p(some)
        log_p = whole.log_p(slice(first + begin, first + end)).to(log_q)
        own = targets[begin:end]
        losses = [-each.gather(-1, own)[:, 0] for each in (log_p, log_q)]
        jeffreys = ((log_p.exp() - log_q.exp()) * log_p.sub_(log_q)).sum(dim=-1)
        scores = torch.stack([*losses, jeffreys], dim=-1)
        try:
            require_finite(scores)
        except NonFiniteLogits as error:
            raise NonFiniteLogits(first + begin + error.position) from error
        parts.append(scores.cpu().double())
    return torch.cat(parts) if parts else torch.empty((0, 3), dtype=torch.float64)


def tempered_losses(logits: Tensor, labels: Tensor, inverse_temperatures: tuple[float, ...]) -> Tensor:
    """Loss at inverse temperatures b, with three derivatives by b: [N, V], [N] -> fp64 [N, G, 4], nats.

    loss(b) = log sum_v exp(b z_v) - b z_label. Its derivatives are E[z] - z_label, Var[z] and
    E[(z - E[z])^3], under softmax(b z).

    Raises:
        NonFiniteLogits: NaN or an infinity in a row.
    """
    on_cpu = logits.device.type == "cpu"
    size = max(1, _BLOCK_BYTES // (4 * logits.shape[-1])) if on_cpu else max(1, len(logits))
    blocks = [
        _tempered_block(logits[start : start + size], labels[start : start + size], inverse_temperatures)
        for start in range(0, len(logits), size)
    ]
    scores = torch.cat(blocks)
    require_finite(scores.sum(dim=(1, 2)))
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
