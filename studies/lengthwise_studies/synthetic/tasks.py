"""Tasks of strings of bits with one number as outcome: mean, length and sum.

>>> bits, lengths = torch.tensor([[1, 0, 1, 1], [1, 0, 0, 0]]), torch.tensor([4, 2])
>>> [task.outcome(bits, lengths).tolist() for task in (MEAN, LENGTH, SUM)]
[[0.75, 0.5], [4.0, 2.0], [3.0, 1.0]]
>>> [round(p, 4) for p in MEAN.outcomes(2).probabilities.tolist()]
[0.25, 0.5, 0.25]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

BOS, EOS = 2, 3
VOCABULARY = 4
"""Tokens 0 and 1 are the bits. BOS and EOS are needed: without them NoPE cannot tell strings of ones apart."""


class Outcomes(NamedTuple):
    """The exact law of a number: every value [K] and its probability [K], fp64."""

    values: Tensor
    probabilities: Tensor


@dataclass(frozen=True)
class BitTask:
    """A number to predict from a string of bits."""

    name: str
    of: Callable[[Any, Any], Any]
    """What is to be predicted, from the number of ones and the length: numbers or tensors."""
    uniform: bool = False
    """Whether the number of ones is uniform on 0 .. length; otherwise the bits are fair."""

    def draw(self, lengths: Tensor, longest: int, generator: torch.Generator) -> Tensor:
        """Strings of the given lengths: bits [N, longest] with zeros behind each string's end."""
        inside = torch.arange(longest) < lengths.unsqueeze(1)
        if not self.uniform:
            return torch.randint(0, 2, (len(lengths), longest), generator=generator) * inside
        # Placed at random (appendix F).
        counts = (torch.rand(len(lengths), generator=generator) * (lengths + 1)).long()
        keys = torch.rand(len(lengths), longest, generator=generator).masked_fill_(~inside, 2.0)
        ranks = keys.argsort(dim=-1).argsort(dim=-1)
        return (ranks < counts.unsqueeze(1)).long()

    def outcome(self, bits: Tensor, lengths: Tensor) -> Tensor:
        """What is to be predicted [N]."""
        return self.of(bits.sum(-1), lengths).float()

    def outcomes(self, length: int) -> Outcomes:
        """The law of the outcome at a length."""
        counts, probabilities = count_law(length, uniform=self.uniform)
        values = self.of(counts, length)
        if not isinstance(values, Tensor):
            return Outcomes(torch.tensor([float(values)]).double(), torch.ones(1).double())
        return Outcomes(values, probabilities)


def count_law(length: int, *, uniform: bool = False) -> Outcomes:
    """The law of the number of ones: binomial for fair bits, or uniform on 0 .. length."""
    ways = [1 if uniform else math.comb(length, ones) for ones in range(length + 1)]
    probabilities = torch.tensor([way / sum(ways) for way in ways], dtype=torch.float64)
    return Outcomes(torch.arange(length + 1).double(), probabilities)


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


MEAN = BitTask("mean", lambda ones, length: ones / length)
LENGTH = BitTask("length", lambda ones, length: length)
SUM = BitTask("sum", lambda ones, length: ones)
UNIFORM_COUNT_MEAN = BitTask("uniform-count-mean", MEAN.of, uniform=True)
BIT_TASKS: dict[str, BitTask] = {task.name: task for task in (MEAN, LENGTH, SUM, UNIFORM_COUNT_MEAN)}
