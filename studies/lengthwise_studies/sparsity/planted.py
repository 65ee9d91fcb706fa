"""Sparse parity, a k-sparse planted correlation: k tokens at random places decide the label.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.transformer import StackedTransformer

BEGIN, END = 4, 5
SYMBOLS = 6
"""Bits 0 and 1; 2 and 3, which mean nothing; and both markers. The paper's alphabet was not found.

In this one, which is ours, a token shows whether it counts.
"""
_DRAWN_AHEAD = 200
"""Steps whose samples are drawn at once: samples of one length and one k are one operation."""


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
    return regularity(law, length, length, k)


def regularity(law: PositionLaw, length: int, other: int, k: int) -> float:
    """eta: the largest ratio of the probability of a set at `length` to that of a shift of it at `other`.

    Infinite if a set occurs at `length` that does not fit into `other` or cannot occur there.
    """
    above, below = law.table(length, k), law.table(other, k)
    largest = 0.0
    for span in range(1, length + 1):
        highest = float(above[:, span].max())
        if highest == 0:
            continue
        places = other - span + 1
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


def sparse_parity(
    law: PositionLaw, count: int, length: int, k: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Tokens [count, length] with k fair bits at S, and whether the number of ones is odd [count].

    Raises:
        UsageError: k below 1 or above the length; a law with no set of k positions.
    """
    positions = law.draw(count, length, k, generator)
    background = torch.tensor([0.0, 0.0, 0.5, 0.5]).multinomial(
        count * length, replacement=True, generator=generator
    )
    bits = torch.randint(0, 2, (count, k), generator=generator)
    return background.view(count, length).scatter(1, positions, bits), bits.sum(-1) % 2


class PlantedBatch(NamedTuple):
    """What every model of a stack sees in one step, each its own samples."""

    tokens: Tensor
    """[S, B, T] begin marker, tokens, end markers as padding."""
    last: Tensor
    """[S, B] index of the first end marker, where the model gives the label."""
    labels: Tensor
    """[S, B] 0 or 1."""


def _marked(tokens: Tensor, *, width: int) -> Tensor:
    """Tokens [N, length] between a begin and end markers, [N, width + 2]."""
    return F.pad(F.pad(tokens, (1, 0), value=BEGIN), (0, width + 1 - tokens.shape[1]), value=END)


def planted_batches(
    law: PositionLaw,
    *,
    lengths: Sequence[int],
    ks: Sequence[int],
    size: int,
    steps: int,
    seeds: Sequence[int],
) -> Iterator[PlantedBatch]:
    """Fresh samples for each step, length and k uniform on those given; a model's depend on its seed alone.

    Raises:
        UsageError: a k above the shortest length.
    """
    # Not the stream that the initial weights come from.
    generators = [torch.Generator().manual_seed(seed + 2**20) for seed in seeds]
    for begin in range(0, steps, _DRAWN_AHEAD):
        ahead = min(_DRAWN_AHEAD, steps - begin)
        drawn = [_draw(law, lengths, ks, ahead * size, generator) for generator in generators]
        tokens, last, labels = (torch.stack(parts) for parts in zip(*drawn, strict=True))
        for step in range(ahead):
            part = slice(step * size, (step + 1) * size)
            yield PlantedBatch(tokens[:, part], last[:, part], labels[:, part])


def _draw(
    law: PositionLaw, lengths: Sequence[int], ks: Sequence[int], count: int, generator: torch.Generator
) -> PlantedBatch:
    """`count` samples of one model, each field without its first dimension."""
    longest = max(lengths)
    kinds = torch.randint(0, len(lengths) * len(ks), (count,), generator=generator)
    tokens = torch.empty(count, longest + 2, dtype=torch.long)
    last, labels = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.long)
    for kind in kinds.unique().tolist():
        rows = (kinds == kind).nonzero().squeeze(1)
        length, k = lengths[kind // len(ks)], ks[kind % len(ks)]
        drawn, labels[rows] = sparse_parity(law, len(rows), length, k, generator)
        tokens[rows] = _marked(drawn, width=longest)
        last[rows] = length + 1
    return PlantedBatch(tokens, last, labels)


def label_losses(model: StackedTransformer, batch: PlantedBatch) -> Tensor:
    """Cross entropy of every model [S] over the labels, in nats; the model's number is the log-odds of label 1."""
    odds = model.value(batch.tokens, batch.last)
    return F.binary_cross_entropy_with_logits(odds, batch.labels.float(), reduction="none").mean(1)


@torch.no_grad()
def right_labels(
    model: StackedTransformer, law: PositionLaw, *, length: int, k: int, samples: int, seed: int
) -> list[int]:
    """How many of `samples` labels each model gets right; every model sees its own samples.

    So that trials of different models are independent, and their sum is binomial given the models.
    """
    drawn, labels = sparse_parity(law, model.stack * samples, length, k, torch.Generator().manual_seed(seed))
    tokens = _marked(drawn, width=length).view(model.stack, samples, -1)
    guesses = model.value(tokens, torch.full((model.stack, samples), length + 1)) > 0
    return (guesses == labels.view(model.stack, samples).bool()).sum(1).tolist()
