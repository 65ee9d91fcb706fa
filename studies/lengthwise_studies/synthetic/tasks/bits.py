"""Tasks of strings of bits with one number as outcome: mean, length and sum.

The mean of a string of bits: its outcomes lie in [0, 1] at every length (Fig. 1a).

>>> import torch
>>> bits = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]])
>>> MEAN.outcome(bits, torch.tensor([4, 2])).tolist()
[0.75, 0.5]
>>> [round(p, 4) for p in MEAN.outcomes(2).probabilities.tolist()]
[0.25, 0.5, 0.25]

The length of a string of bits: at length l the only outcome is l (Fig. 1b).

>>> LENGTH.outcome(torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]]), torch.tensor([4, 2])).tolist()
[4.0, 2.0]
>>> LENGTH.outcomes(7).values.tolist()
[7.0]

The sum of a string of bits: its outcomes 0 .. l grow with the length l (Fig. 3 and 4).

>>> import torch
>>> bits = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]])
>>> SUM.outcome(bits, torch.tensor([4, 2])).tolist()
[3.0, 1.0]
>>> UNIFORM_COUNT_SUM.outcomes(3).probabilities.tolist()
[0.25, 0.25, 0.25, 0.25]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

BOS, EOS = 2, 3
VOCABULARY = 4
"""Tokens 0 and 1 are the bits. BOS and EOS are needed: without them NoPE cannot tell strings of ones apart."""


class Outcomes(NamedTuple):
    """The exact law of a task's outcome at one length."""

    values: Tensor
    """Every outcome [K], fp64."""
    probabilities: Tensor
    """Of each, [K], fp64."""


@dataclass(frozen=True)
class BitTask:
    """A number to predict from a string of bits.

    Args:
        name: the key in its table.
        description: in one line.
        draw: strings of the given lengths, bits [N, longest] with zeros behind each string's end.
        outcome: what is to be predicted, [N].
        outcomes: the law of the outcome at a length.
    """

    name: str
    description: str
    draw: Callable[[Tensor, int, torch.Generator], Tensor]
    outcome: Callable[[Tensor, Tensor], Tensor]
    outcomes: Callable[[int], Outcomes]


def fair_bits(lengths: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """Bits [N, longest] that are 0 or 1 with equal probability; 0 behind each string's end."""
    bits = torch.randint(0, 2, (len(lengths), longest), generator=generator)
    return bits * (torch.arange(longest) < lengths.unsqueeze(1))


def uniform_count_bits(lengths: Tensor, longest: int, generator: torch.Generator) -> Tensor:
    """Bits whose number of ones is uniform on 0 .. length, placed at random (appendix F)."""
    counts = (torch.rand(len(lengths), generator=generator) * (lengths + 1)).long()
    keys = torch.rand(len(lengths), longest, generator=generator)
    keys.masked_fill_(torch.arange(longest) >= lengths.unsqueeze(1), 2.0)
    ranks = keys.argsort(dim=-1).argsort(dim=-1)
    return (ranks < counts.unsqueeze(1)).long()


def count_law(length: int, *, uniform: bool) -> Outcomes:
    """The law of the number of ones: binomial for fair bits, or uniform on 0 .. length."""
    counts = torch.arange(length + 1, dtype=torch.float64)
    if uniform:
        return Outcomes(counts, torch.full_like(counts, 1 / (length + 1)))
    n = torch.tensor(float(length), dtype=torch.float64)
    log_choose = torch.lgamma(n + 1) - torch.lgamma(counts + 1) - torch.lgamma(n - counts + 1)
    return Outcomes(counts, (log_choose - n * torch.log(torch.tensor(2.0, dtype=torch.float64))).exp())


def encode(bits: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens [N, longest + 2]: BOS, the bits, EOS and more EOS as padding; and the index of the first EOS [N].

    Example:
        >>> tokens, last = encode(torch.tensor([[1, 0, 1], [1, 0, 0]]), torch.tensor([3, 1]))
        >>> tokens.tolist(), last.tolist()
        ([[2, 1, 0, 1, 3], [2, 1, 3, 3, 3]], [4, 2])
    """
    count, longest = bits.shape
    tokens = torch.full((count, longest + 2), EOS)
    tokens[:, 0] = BOS
    tokens[:, 1:-1] = torch.where(torch.arange(longest) < lengths.unsqueeze(1), bits, EOS)
    return tokens, lengths + 1


def length(bits: Tensor, lengths: Tensor) -> Tensor:
    """The length [N]."""
    return lengths.float()


def _length_law(of: int) -> Outcomes:
    return Outcomes(torch.tensor([float(of)], dtype=torch.float64), torch.ones(1, dtype=torch.float64))


LENGTH = BitTask("length", "length of a string of fair bits", fair_bits, length, _length_law)


def total(bits: Tensor, lengths: Tensor) -> Tensor:
    """Ones [N]."""
    return bits.sum(-1).float()


SUM = BitTask("sum", "sum of fair bits", fair_bits, total, lambda length: count_law(length, uniform=False))
UNIFORM_COUNT_SUM = BitTask(
    "uniform-count-sum",
    "sum of bits whose number of ones is uniform",
    uniform_count_bits,
    total,
    lambda length: count_law(length, uniform=True),
)


def mean(bits: Tensor, lengths: Tensor) -> Tensor:
    """Ones over length [N]."""
    return bits.sum(-1) / lengths


def _mean_law(length: int, *, uniform: bool) -> Outcomes:
    counts, probabilities = count_law(length, uniform=uniform)
    return Outcomes(counts / length, probabilities)


MEAN = BitTask("mean", "mean of fair bits", fair_bits, mean, lambda length: _mean_law(length, uniform=False))
UNIFORM_COUNT_MEAN = BitTask(
    "uniform-count-mean",
    "mean of bits whose number of ones is uniform (Fig. 5)",
    uniform_count_bits,
    mean,
    lambda length: _mean_law(length, uniform=True),
)
