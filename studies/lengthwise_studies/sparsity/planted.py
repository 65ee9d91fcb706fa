"""k-sparse planted correlations: samples in which k tokens at random places decide the label.

At length l a k-subset S of the positions 0 .. l-1 is drawn from a position law. The tokens at S are drawn jointly,
all others independently from a background law. The label is a function of the tokens at S, in order
("The Role of Sparsity for Length Generalization in LLMs", Def. 3.2; the label function as recalled there).

Of a position law, three numbers matter to the theory. Each is computed from the law, at any length:

    locality    the largest span of S (last - first + 1) of positive probability
    relativity  max over S and its shifts S + t inside of the length of Q(S) / Q(S + t); 1 if shifts do not matter
    regularity  eta(l, l') = max over S at length l and its shifts S + t inside of l' of Q_l(S) / Q_l'(S + t)

Relativity is defined in the paper for keys of attention, not for the data; that of a law is ours. It says whether
a model that cannot see absolute positions loses anything. Regularity up to shifts is our reading of Assumption 4.2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from lengthwise.errors import UsageError


@dataclass(frozen=True)
class PositionLaw(ABC):
    """The law of S. Sets of one first position and one span are equally probable."""

    @abstractmethod
    def weight(self, length: int, first: int, span: int) -> float:
        """What the probability of every set with this first position and span is proportional to."""

    def table(self, length: int, k: int) -> Tensor:
        """Probability of one set by first position and span, [length, length + 1], fp64; 0 where none fits.

        Raises:
            UsageError: k below 1 or above the length; a law with no set of k positions.
        """
        return _table(self, length, k)

    def probability(self, positions: Sequence[int], length: int) -> float:
        """Q(S) of one set of distinct positions, in order."""
        first, span = positions[0], positions[-1] - positions[0] + 1
        return float(self.table(length, len(positions))[first, span])

    def draw(self, count: int, length: int, k: int, generator: torch.Generator) -> Tensor:
        """Sets [count, k], each in order."""
        # The probability of a pair of first position and span is that of one set times their number.
        pairs = (self.table(length, k) * _inner_counts(length, k)).flatten()
        drawn = pairs.multinomial(count, replacement=True, generator=generator)
        first = drawn // (length + 1)
        last = first + drawn % (length + 1) - 1
        keys = torch.rand(count, length, generator=generator)
        places = torch.arange(length)
        keys[(places <= first.unsqueeze(1)) | (places >= last.unsqueeze(1))] = 2.0
        inner = keys.topk(max(0, k - 2), largest=False).indices
        ends = [first.unsqueeze(1), last.unsqueeze(1)] if k > 1 else [first.unsqueeze(1)]
        return torch.cat([*ends, inner], dim=1).sort(dim=1).values


@dataclass(frozen=True)
class Anywhere(PositionLaw):
    """All sets of k positions are equally probable: no locality."""

    def weight(self, length: int, first: int, span: int) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class Within(PositionLaw):
    """All sets of k positions with a span of at most `width` are equally probable."""

    width: int

    def weight(self, length: int, first: int, span: int) -> float:
        """1 up to the width, else 0."""
        return float(span <= self.width)


def locality(law: PositionLaw, length: int, k: int) -> int:
    """The largest span of a set of positive probability: L_local is at least this."""
    return int((law.table(length, k) > 0).any(dim=0).nonzero().max())


def relativity(law: PositionLaw, length: int, k: int) -> float:
    """The largest ratio of the probabilities of a set and of a shift of it that fits; infinite if one is 0."""
    return _largest_ratio(law.table(length, k), law.table(length, k))


def regularity(law: PositionLaw, length: int, other: int, k: int) -> float:
    """eta: the largest ratio of the probability of a set at `length` to that of a shift of it at `other`.

    Infinite if a set occurs at `length` that does not fit into `other` or cannot occur there.
    """
    return _largest_ratio(law.table(length, k), law.table(other, k))


def _largest_ratio(above: Tensor, below: Tensor) -> float:
    largest = 0.0
    for span in range(1, above.shape[1]):
        highest = float(above[:, span].max())
        if highest == 0:
            continue
        places = len(below) - span + 1
        lowest = float(below[:places, span].min()) if places > 0 else 0.0
        largest = max(largest, highest / lowest if lowest else math.inf)
    return largest


@cache
def _table(law: PositionLaw, length: int, k: int) -> Tensor:
    if not 1 <= k <= length:
        raise UsageError(f"k is {k} at length {length}", expected="1 or more, and at most the length")
    weights = torch.zeros(length, length + 1, dtype=torch.float64)
    for span in range(k, length + 1) if k > 1 else (1,):
        for first in range(length - span + 1):
            weights[first, span] = law.weight(length, first, span)
    total = float((weights * _inner_counts(length, k)).sum())
    if total == 0:
        raise UsageError(f"{law} has no set of {k} positions at length {length}", expected="a smaller k")
    return weights / total


@cache
def _inner_counts(length: int, k: int) -> Tensor:
    """How many sets have a given first position and span, by span [length + 1]."""
    if k == 1:
        return torch.tensor([float(span == 1) for span in range(length + 1)], dtype=torch.float64)
    return torch.tensor(
        [math.comb(span - 2, k - 2) if span >= k else 0 for span in range(length + 1)], dtype=torch.float64
    )


class Samples(NamedTuple):
    """Samples of one length."""

    tokens: Tensor
    """[N, length]"""
    positions: Tensor
    """S of each, [N, k], in order."""
    labels: Tensor
    """[N]"""


@dataclass(frozen=True, kw_only=True)
class PlantedCorrelations:
    """A data model with k planted tokens.

    Args:
        positions: the law of S.
        planted: draws the tokens at S jointly: (count, k, generator) -> [count, k].
        background: probability of each token of the vocabulary elsewhere.
        label: of planted tokens [N, k] -> [N].
    """

    positions: PositionLaw
    planted: Callable[[int, int, torch.Generator], Tensor]
    background: tuple[float, ...]
    label: Callable[[Tensor], Tensor]

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return len(self.background)

    def draw(self, count: int, length: int, k: int, generator: torch.Generator) -> Samples:
        """`count` independent samples.

        Raises:
            UsageError: k below 1 or above the length; a law with no set of k positions.
        """
        positions = self.positions.draw(count, length, k, generator)
        background = torch.tensor(self.background)
        tokens = background.multinomial(count * length, replacement=True, generator=generator)
        planted = self.planted(count, k, generator)
        return Samples(
            tokens.view(count, length).scatter(1, positions, planted), positions, self.label(planted)
        )


def fair_bits(count: int, k: int, generator: torch.Generator) -> Tensor:
    """Tokens 0 and 1 with equal probability, independently."""
    return torch.randint(0, 2, (count, k), generator=generator)


def parity(planted: Tensor) -> Tensor:
    """1 where the number of ones is odd."""
    return planted.sum(-1) % 2


def sparse_parity(positions: PositionLaw) -> PlantedCorrelations:
    """The parity of k fair bits (tokens 0 and 1) among two symbols (2 and 3) that mean nothing.

    The paper's alphabet was not found; this one, in which a token shows whether it counts, is ours.
    """
    return PlantedCorrelations(
        positions=positions, planted=fair_bits, background=(0.0, 0.0, 0.5, 0.5), label=parity
    )
