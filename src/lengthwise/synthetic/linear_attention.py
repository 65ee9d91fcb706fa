"""The linear attention of theorem 2, trained on samples: does it find what the theory computes?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise.synthetic.theory import Table
from lengthwise.synthetic.threads import one_thread

_RATE = 0.02


@one_thread()
def train_tables(
    task: str, longest: int, *, seeds: Sequence[int], rank: int, steps: int, batch: int = 256
) -> Tensor:
    """Tables a[s][t] = q_s . kappa_t that Adam reaches on sampled strings (Eq. 8), [S, 2, 2], fp64.

    Args:
        task: length, sum or mean.
        longest: length of the training strings; every prefix is predicted.
        seeds: one model each; they differ in initial weights and samples.
        rank: head dimension; 1 is the paper's scalar proof.
        steps: steps of `batch` fresh strings.
        batch: strings a step.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    weights = torch.stack([torch.randn(2, 2, rank, generator=g, dtype=torch.float64) for g in generators])
    weights.requires_grad_()
    adam = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    lengths = torch.arange(1, longest + 1)
    for _ in range(steps):
        bits = torch.stack([torch.randint(0, 2, (batch, longest), generator=g) for g in generators])
        ones = bits.cumsum(-1).double()
        loss = (_outputs(_tables(weights), bits, ones, lengths) - _targets(task, ones, lengths)).square()
        adam.zero_grad()
        # Models do not share weights, so the sum trains each on its own mean.
        loss.mean((1, 2)).sum().backward()
        adam.step()
        schedule.step()
    return _tables(weights).detach()


def measured_errors(
    task: str, tables: Tensor, lengths: Sequence[int], *, samples: int, seed: int = 0
) -> Tensor:
    """Mean squared error [S, lengths] of the last prediction over sampled strings of each length."""
    errors = []
    for length in lengths:
        generator = torch.Generator().manual_seed(seed * 100_003 + length)
        bits = torch.randint(0, 2, (1, samples, length), generator=generator)
        ones = bits.sum(-1, keepdim=True).double()
        at = torch.tensor([length])
        difference = _outputs(tables, bits[..., -1:], ones, at) - _targets(task, ones, at)
        errors.append(difference.square().mean((1, 2)))
    return torch.stack(errors, dim=1)


def as_table(table: Tensor) -> Table:
    """One model's table in the form that `theory` takes."""
    (a00, a01), (a10, a11) = table.tolist()
    return ((a00, a01), (a10, a11))


def _tables(weights: Tensor) -> Tensor:
    query, kappa = weights[:, 0], weights[:, 1]
    return query @ kappa.transpose(1, 2)


def _outputs(tables: Tensor, last: Tensor, ones: Tensor, lengths: Tensor) -> Tensor:
    """g (Eq. 7) from the last bit and the number of ones of each prefix [S, N, L]."""
    share = ones / lengths
    asked = [tables[:, s, :, None, None] for s in (0, 1)]
    by_last = [(1 - share) * row[:, 0] + share * row[:, 1] for row in asked]
    return torch.where(last == 1, by_last[1], by_last[0])


def _targets(task: str, ones: Tensor, lengths: Tensor) -> Tensor:
    return {"length": lengths.double().expand_as(ones), "sum": ones, "mean": ones / lengths}[task]
