"""Theorem 2 (appendix B.1), exactly: linear attention with one output on strings of fair bits.

The model (Eq. 7) sees a bit in two places: as the last token s, which gives the query, and as a
token t that is attended to. All that it can compute is a table of four numbers a[s][t] = q_s * kappa_t:

    g(x[:k]) = (1/k) * sum over i <= k of a[x_k][x_i]

The objective (Eq. 8) averages the squared error over the prefixes of lengths 1 .. L. It depends on a string
through its last bit and its number of ones alone, so expectations are sums of at most 2 * L terms. With
one head dimension the table has rank 1 (the paper's scalar proof); with two or more it is free.
`train_tables` trains the same model on samples. `docs/explanation/theory.md` has the derivations.

A table is a tensor [2, 2] or, of S models, [S, 2, 2], in fp64. Tasks are those of `tasks` with fair bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise_studies.synthetic.tasks import BIT_TASKS, count_law
from lengthwise_studies.synthetic.training import one_thread

TASKS = ("length", "sum", "mean")
_RATE = 0.02
_TURNS = 50


def strings(length: int) -> tuple[Tensor, Tensor, Tensor]:
    """Last bit [2, 1], number of ones [2, length] and probability [length] of fair strings, like ones together."""
    last = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    others = count_law(length - 1)
    return last, others.values + last, others.probabilities / 2


def predictions(table: Tensor, last: Tensor, ones: Tensor, length: Tensor | int) -> Tensor:
    """g (Eq. 7) of strings [..., N, L] from their last bits, numbers of ones and lengths."""
    share = ones / length
    entries = table[..., None, None]
    by_last = [(1 - share) * entries[..., s, 0, :, :] + share * entries[..., s, 1, :, :] for s in (0, 1)]
    return torch.where(last == 1, by_last[1], by_last[0])


def error(task: str, table: Tensor, length: int) -> Tensor:
    """Exact mean squared error of the last prediction on strings of one length (Eq. 9)."""
    last, ones, probabilities = strings(length)
    differences = predictions(table, last, ones, length) - BIT_TASKS[task].of(ones, length)
    return (probabilities * differences.square()).sum((-2, -1))


def objective(task: str, table: Tensor, longest: int) -> Tensor:
    """The training objective (Eq. 8): the mean of the errors at lengths 1 .. longest."""
    return torch.stack([error(task, table, length) for length in range(1, longest + 1)]).mean(0)


def full_minimum(task: str, longest: int) -> Tensor:
    """The best table without the rank-1 restriction (head dimension 2 or more), by exact least squares."""
    moments, with_target = _normal_equations(task, longest)
    return torch.linalg.solve(moments, with_target)


def rank_one_minimum(task: str, longest: int) -> Tensor:
    """The best table q_s * kappa_t (head dimension 1), globally.

    For a direction kappa = (cos w, sin w) the best q is closed, and so is the best kappa for a q: take the best w of
    a fine grid over half a turn, then solve for q and kappa in turn.
    """
    moments, with_target = _normal_equations(task, longest)

    def best_q(kappa: Tensor) -> Tensor:
        return (kappa @ with_target.T) / torch.einsum("...i,sij,...j->...s", kappa, moments, kappa)

    angles = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    directions = torch.stack([angles.cos(), angles.sin()], dim=1)
    gains = ((directions @ with_target.T) * best_q(directions)).sum(1)
    kappa = directions[gains.argmax()]
    for _ in range(_TURNS):
        q = best_q(kappa)
        kappa = torch.linalg.solve(torch.einsum("s,sij->ij", q**2, moments), q @ with_target)
    return torch.outer(best_q(kappa), kappa)


def _normal_equations(task: str, longest: int) -> tuple[Tensor, Tensor]:
    """By last bit: second moments of the shares of zeros and ones [2, 2, 2], and with the target [2, 2]."""
    moments, with_target = torch.zeros(2, 2, 2).double(), torch.zeros(2, 2).double()
    for length in range(1, longest + 1):
        _, ones, probabilities = strings(length)
        shares = torch.stack([1 - ones / length, ones / length])
        target = BIT_TASKS[task].of(ones, length) * torch.ones_like(ones)
        moments += torch.einsum("isn,jsn,n->sij", shares, shares, probabilities / longest)
        with_target += torch.einsum("isn,sn,n->si", shares, target, probabilities / longest)
    return moments, with_target


def ansatz(task: str, longest: int) -> Tensor:
    """The table that the paper's proof ends with.

    length: all entries (L + 1) / 2 (Eq. 15). sum: Gamma = L (L + 3) / (2 (L + H_L)) for attended ones, 0 for
    zeros (Eq. 19). mean: 1 for ones, 0 for zeros (Eq. 21).
    """
    gamma = paper_gamma(task, longest)
    attended_zero = gamma if task == "length" else 0.0
    return torch.tensor([[attended_zero, gamma]] * 2, dtype=torch.float64)


def paper_gamma(task: str, longest: int) -> float:
    """Gamma of Eq. 15, 19 and 21."""
    harmonic = math.fsum(1 / i for i in range(1, longest + 1))
    return {
        "length": (longest + 1) / 2,
        "sum": longest * (longest + 3) / (2 * (longest + harmonic)),
        "mean": 1.0,
    }[task]


def printed_error(task: str, longest: int, length: int) -> float:
    """The generalization error as the paper prints it (Eq. 15, 20 and 22); for sum it is twice too large."""
    gamma = paper_gamma(task, longest)
    return {
        "length": (length - gamma) ** 2,
        "sum": (length + 1) / (2 * length) * (gamma - length) ** 2,
        "mean": 0.0,
    }[task]


def corrected_error(task: str, longest: int, length: int) -> float:
    """The exact error of the paper's own table in closed form.

    sum: (l + 1) / (4 l) * (Gamma - l)^2, because E[ones^2] = l (l + 1) / 4. The rest is printed_error.
    """
    printed = printed_error(task, longest, length)
    return printed / 2 if task == "sum" else printed


def growth_bounds(task: str, largest: float, length: int) -> tuple[float, float]:
    """Theorem 2 with constants: bounds of the error at a test length where predictions lie in [-A, A].

    The error is at most (target + A)^2 for the largest target, and by Jensen's inequality at least
    (E target - A)^2 once E target > A. For length the targets are l; for sum they are at most l with mean
    l / 2; for mean they lie in [0, 1].
    """
    greatest, expected = {"length": (length, length), "sum": (length, length / 2), "mean": (1, 0.5)}[task]
    return max(0.0, expected - largest) ** 2, (greatest + largest) ** 2


@one_thread()
def train_tables(
    task: str, longest: int, *, seeds: Sequence[int], rank: int, steps: int, batch: int = 256
) -> Tensor:
    """Tables a[s][t] = q_s . kappa_t that Adam reaches on sampled strings (Eq. 8), [S, 2, 2].

    Every prefix of strings of length `longest` is predicted. Seeds differ in initial weights and samples. `rank` is
    the head dimension; 1 is the paper's scalar proof.
    """
    target = BIT_TASKS[task].of
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    weights = torch.stack([torch.randn(2, 2, rank, generator=g, dtype=torch.float64) for g in generators])
    weights.requires_grad_()
    adam = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    lengths = torch.arange(1, longest + 1)
    for _ in range(steps):
        bits = torch.stack([torch.randint(0, 2, (batch, longest), generator=g) for g in generators])
        ones = bits.cumsum(-1).double()
        found = predictions(weights[:, 0] @ weights[:, 1].mT, bits, ones, lengths)
        adam.zero_grad()
        # Models do not share weights, so the sum trains each on its own mean.
        (found - target(ones, lengths)).square().mean((1, 2)).sum().backward()
        adam.step()
        schedule.step()
    return (weights[:, 0] @ weights[:, 1].mT).detach()


def measured_errors(task: str, tables: Tensor, lengths: Sequence[int], *, samples: int) -> Tensor:
    """Mean squared error [S, lengths] of the last prediction over sampled strings of each length."""
    errors = []
    for length in lengths:
        generator = torch.Generator().manual_seed(length)
        bits = torch.randint(0, 2, (1, samples, length), generator=generator)
        ones = bits.sum(-1, keepdim=True).double()
        differences = predictions(tables, bits[..., -1:], ones, length) - BIT_TASKS[task].of(ones, length)
        errors.append(differences.square().mean((1, 2)))
    return torch.stack(errors, dim=1)
