"""Theorem 2 (appendix B.1), exactly: linear attention with one output on strings of fair bits.

The model (Eq. 7) sees a bit in two places: as the last token s, which gives the query, and as a
token t that is attended to. All that it can compute is a table of four numbers a[s][t] = q_s * kappa_t:

    g(x[:k]) = (1/k) * sum over i <= k of a[x_k][x_i]

The objective (Eq. 8) averages the squared error over the prefixes of lengths 1 .. L. It depends on a string
through its last bit and its number of ones alone, so expectations are sums of at most 2 * L terms. With
one head dimension the table has rank 1 (the paper's scalar proof); with two or more it is free.
`train_tables` trains the same model on samples. `docs/explanation/theory.md` has the derivations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from lengthwise_studies.synthetic import named
from lengthwise_studies.synthetic.training import one_thread

Table = tuple[tuple[float, float], tuple[float, float]]
"""a[s][t]: what a token t contributes when the last token is s."""

TARGETS: dict[str, Callable[[Any, Any], Any]] = {
    "length": lambda ones, length: length,
    "sum": lambda ones, length: ones,
    "mean": lambda ones, length: ones / length,
}
"""What is predicted, from the number of ones and the length: numbers or tensors."""


@dataclass(frozen=True)
class Minimum:
    """A table and its training loss (Eq. 8)."""

    table: Table
    loss: float


def strings(length: int) -> Iterator[tuple[float, int, int]]:
    """Probability, last bit and number of ones of all fair strings of a length, like ones together."""
    total = 2**length
    for ones in range(length + 1):
        if ones:
            yield float(Fraction(math.comb(length - 1, ones - 1), total)), 1, ones
        if ones < length:
            yield float(Fraction(math.comb(length - 1, ones), total)), 0, ones


def prediction(table: Table, last: int, ones: int, length: int) -> float:
    """g of a string (Eq. 7)."""
    return ((length - ones) * table[last][0] + ones * table[last][1]) / length


def error(task: str, table: Table, length: int) -> float:
    """Exact mean squared error of the last prediction on strings of one length (Eq. 9)."""
    target = named(TARGETS, task, "task")
    return math.fsum(
        p * (prediction(table, last, ones, length) - target(ones, length)) ** 2
        for p, last, ones in strings(length)
    )


def objective(task: str, table: Table, longest: int) -> float:
    """The training objective (Eq. 8): the mean of the errors at lengths 1 .. longest."""
    return math.fsum(error(task, table, length) for length in range(1, longest + 1)) / longest


def full_minimum(task: str, longest: int) -> Minimum:
    """The best table without the rank-1 restriction (head dimension 2 or more), by exact least squares."""
    rows = []
    for moments in _normal_equations(task, longest):
        m00, m01, m11, b0, b1 = moments
        determinant = m00 * m11 - m01 * m01
        rows.append(((b0 * m11 - b1 * m01) / determinant, (b1 * m00 - b0 * m01) / determinant))
    table = (rows[0], rows[1])
    return Minimum(table, objective(task, table, longest))


def rank_one_minimum(task: str, longest: int) -> Minimum:
    """The best table q_s * kappa_t (head dimension 1), globally.

    For a direction kappa = (cos w, sin w) the best q is closed, so what remains is one angle: a fine grid
    over half a turn, then golden-section search around its best point.
    """
    systems = list(_normal_equations(task, longest))

    def gains(angle: float) -> list[tuple[float, float]]:
        kappa = (math.cos(angle), math.sin(angle))
        found = []
        for m00, m01, m11, b0, b1 in systems:
            slope = b0 * kappa[0] + b1 * kappa[1]
            curvature = m00 * kappa[0] ** 2 + 2 * m01 * kappa[0] * kappa[1] + m11 * kappa[1] ** 2
            found.append((slope / curvature, slope**2 / curvature))
        return found

    def loss_part(angle: float) -> float:
        return -sum(gain for _, gain in gains(angle))

    points = 20_000
    best = min(range(points), key=lambda index: loss_part(math.pi * index / points))
    angle = _golden_section(loss_part, math.pi * (best - 1) / points, math.pi * (best + 1) / points)
    kappa = (math.cos(angle), math.sin(angle))
    (q0, _), (q1, _) = gains(angle)
    table = ((q0 * kappa[0], q0 * kappa[1]), (q1 * kappa[0], q1 * kappa[1]))
    return Minimum(table, objective(task, table, longest))


def ansatz(task: str, longest: int) -> Table:
    """The table that the paper's proof ends with.

    length: all entries (L + 1) / 2 (Eq. 15). sum: Gamma = L (L + 3) / (2 (L + H_L)) for attended ones, 0 for
    zeros (Eq. 19). mean: 1 for ones, 0 for zeros (Eq. 21).
    """
    gamma = paper_gamma(task, longest)
    attended_zero = gamma if task == "length" else 0.0
    return ((attended_zero, gamma), (attended_zero, gamma))


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
    if task == "sum":
        return (length + 1) / (2 * length) * (gamma - length) ** 2
    return (length - gamma) ** 2 if task == "length" else 0.0


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
    lower = max(0.0, expected - largest) ** 2
    return lower, (greatest + largest) ** 2


def _normal_equations(task: str, longest: int) -> Iterator[tuple[float, float, float, float, float]]:
    """For last bit 0, then 1: second moments of the shares of zeros and ones, and with the target."""
    target = named(TARGETS, task, "task")
    for wanted in (0, 1):
        terms: list[tuple[float, ...]] = []
        for length in range(1, longest + 1):
            for p, last, ones in strings(length):
                if last == wanted:
                    one = ones / length
                    zero, y = 1 - one, target(ones, length)
                    terms.append((p * zero * zero, p * zero * one, p * one * one, p * zero * y, p * one * y))
        m00, m01, m11, b0, b1 = (math.fsum(column) / longest for column in zip(*terms, strict=True))
        yield m00, m01, m11, b0, b1


def _golden_section(function: Callable[[float], float], low: float, high: float) -> float:
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if function(left) < function(right):
            high = right
        else:
            low = left
    return (low + high) / 2


_RATE = 0.02


@one_thread()
def train_tables(
    task: str, longest: int, *, seeds: Sequence[int], rank: int, steps: int, batch: int = 256
) -> Tensor:
    """Tables a[s][t] = q_s . kappa_t that Adam reaches on sampled strings (Eq. 8), [S, 2, 2], fp64.

    Every prefix of strings of length `longest` is predicted. Seeds differ in initial weights and samples. `rank` is
    the head dimension; 1 is the paper's scalar proof.
    """
    target = named(TARGETS, task, "task")
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    weights = torch.stack([torch.randn(2, 2, rank, generator=g, dtype=torch.float64) for g in generators])
    weights.requires_grad_()
    adam = torch.optim.Adam([weights], lr=_RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(adam, steps)
    lengths = torch.arange(1, longest + 1)
    for _ in range(steps):
        bits = torch.stack([torch.randint(0, 2, (batch, longest), generator=g) for g in generators])
        ones = bits.cumsum(-1).double()
        loss = (
            _outputs(weights[:, 0] @ weights[:, 1].mT, bits, ones, lengths) - target(ones, lengths)
        ).square()
        adam.zero_grad()
        # Models do not share weights, so the sum trains each on its own mean.
        loss.mean((1, 2)).sum().backward()
        adam.step()
        schedule.step()
    return (weights[:, 0] @ weights[:, 1].mT).detach()


def measured_errors(
    task: str, tables: Tensor, lengths: Sequence[int], *, samples: int, seed: int = 0
) -> Tensor:
    """Mean squared error [S, lengths] of the last prediction over sampled strings of each length."""
    target, errors = named(TARGETS, task, "task"), []
    for length in lengths:
        generator = torch.Generator().manual_seed(seed * 100_003 + length)
        bits = torch.randint(0, 2, (1, samples, length), generator=generator)
        ones = bits.sum(-1, keepdim=True).double()
        at = torch.tensor([length])
        difference = _outputs(tables, bits[..., -1:], ones, at) - target(ones, at)
        errors.append(difference.square().mean((1, 2)))
    return torch.stack(errors, dim=1)


def as_table(table: Tensor) -> Table:
    """One model's table as nested tuples of numbers."""
    (a00, a01), (a10, a11) = table.tolist()
    return ((a00, a01), (a10, a11))


def _outputs(tables: Tensor, last: Tensor, ones: Tensor, lengths: Tensor) -> Tensor:
    """g (Eq. 7) from the last bit and the number of ones of each prefix [S, N, L]."""
    share = ones / lengths
    asked = [tables[:, s, :, None, None] for s in (0, 1)]
    by_last = [(1 - share) * row[:, 0] + share * row[:, 1] for row in asked]
    return torch.where(last == 1, by_last[1], by_last[0])
