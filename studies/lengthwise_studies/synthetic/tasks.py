"""Tasks of strings of bits with one number as outcome: mean, length and sum.

Outcomes of the mean lie in [0, 1] at every length (Fig. 1a). The only outcome of the length is l (Fig. 1b). Those of
the sum, 0 .. l, grow with the length (Fig. 3 and 4). `uniform-count-mean` has a uniform number of ones
(Fig. 5).

>>> bits, lengths = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]]), torch.tensor([4, 2])
>>> [task.outcome(bits, lengths).tolist() for task in (MEAN, LENGTH, SUM)]
[[0.75, 0.5], [4.0, 2.0], [3.0, 1.0]]
>>> [round(p, 4) for p in MEAN.outcomes(2).probabilities.tolist()]
[0.25, 0.5, 0.25]
>>> LENGTH.outcomes(7).values.tolist()
[7.0]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lengthwise_studies.synthetic import named

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
        draw: strings of the given lengths, bits [N, longest] with zeros behind each string's end.
        outcome: what is to be predicted, [N].
        outcomes: the law of the outcome at a length.
    """

    name: str
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


def _length(bits: Tensor, lengths: Tensor) -> Tensor:
    return lengths.float()


def _sum(bits: Tensor, lengths: Tensor) -> Tensor:
    return bits.sum(-1).float()


def _mean(bits: Tensor, lengths: Tensor) -> Tensor:
    return bits.sum(-1) / lengths


def _length_law(length: int) -> Outcomes:
    return Outcomes(torch.tensor([float(length)], dtype=torch.float64), torch.ones(1, dtype=torch.float64))


def _mean_law(length: int, *, uniform: bool) -> Outcomes:
    counts, probabilities = count_law(length, uniform=uniform)
    return Outcomes(counts / length, probabilities)


MEAN = BitTask("mean", fair_bits, _mean, partial(_mean_law, uniform=False))
LENGTH = BitTask("length", fair_bits, _length, _length_law)
SUM = BitTask("sum", fair_bits, _sum, partial(count_law, uniform=False))
UNIFORM_COUNT_MEAN = BitTask(
    "uniform-count-mean", uniform_count_bits, _mean, partial(_mean_law, uniform=True)
)

BIT_TASKS: dict[str, BitTask] = {task.name: task for task in (MEAN, LENGTH, SUM, UNIFORM_COUNT_MEAN)}


def bit_task(name: str) -> BitTask:
    """The task of that name.

    Raises:
        UsageError: there is none.
    """
    return named(BIT_TASKS, name, "task")
