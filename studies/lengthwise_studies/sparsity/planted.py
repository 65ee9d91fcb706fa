"""Sparse parity, a k-sparse planted correlation: k tokens at random places decide the label.

At length l a k-subset S of the positions 0 .. l-1 is drawn from a position law Q_l. The tokens at S are drawn
jointly, all others independently from a background law. The label is a function of the tokens at S, in order
("The Role of Sparsity for Length Generalization in LLMs", Def. 3.2; the label function as recalled there).

Of a position law, three numbers matter to the theory:

    locality    the largest span of S (last - first + 1) of positive probability
    regularity  eta(l, l') = max over S at length l and its shifts S + t inside of l' of Q_l(S) / Q_l'(S + t)
    relativity  eta(l, l), the same within one length; 1 if shifts do not matter, as for all laws here

Relativity is defined in the paper for keys of attention, not for the data; that of a law is ours. It says whether
a model that cannot see absolute positions loses anything. Regularity up to shifts is our reading of Assumption 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.training import Batch, drawn_batches
from lengthwise_studies.synthetic.transformer import StackedTransformer

BEGIN, END = 4, 5
SYMBOLS = 6
"""Bits 0 and 1; 2 and 3, which mean nothing; and both markers. The paper's alphabet was not found.

In this one, which is ours, a token shows whether it counts.
"""


@dataclass(frozen=True)
class Within:
    """The position law under which all sets of k positions with a span of at most `width` are equally probable."""

    width: float

    def locality(self, length: int, k: int) -> int:
        """The largest span of a set: L_local is at least this."""
        return 1 if k == 1 else int(min(self.width, length))

    def sets(self, length: int, k: int) -> int:
        """How many sets there are: one first position, and k - 1 of the positions after it in reach. Not none."""
        reach = [int(min(self.width, length - first)) for first in range(length)]
        found = sum(math.comb(span - 1, k - 1) for span in reach) if k > 0 else 0
        if not found:
            raise UsageError(
                f"{self} has no set of {k} positions at length {length}", expected="k of 1 or more, that fits"
            )
        return found

    def regularity(self, length: int, other: int, k: int) -> float:
        """eta(length, other); infinite if a set occurs at `length` that does not fit into `other`."""
        ours = self.sets(length, k)
        return math.inf if self.locality(length, k) > other else self.sets(other, k) / ours

    def draw(self, count: int, length: int, k: int, generator: torch.Generator) -> Tensor:
        """Sets [count, k], each in order."""
        places, spans = torch.arange(length), torch.arange(length + 1)
        between = [_between(span, k) for span in range(length + 1)]
        # A first position and a span are as probable as there are sets with both.
        many = torch.tensor(between, dtype=torch.float64) * (spans <= self.width)
        many = many * (places.unsqueeze(1) + spans <= length)
        drawn = (many / many.sum()).flatten().multinomial(count, replacement=True, generator=generator)
        first = (drawn // (length + 1)).unsqueeze(1)
        last = first + (drawn % (length + 1)).unsqueeze(1) - 1
        keys = torch.rand(count, length, generator=generator)
        keys[(places <= first) | (places >= last)] = 2.0
        inner = keys.topk(max(0, k - 2), largest=False).indices
        return torch.cat([first, last, inner] if k > 1 else [first], dim=1).sort(dim=1).values


ANYWHERE = Within(math.inf)
"""All sets of k positions are equally probable: no locality."""


def _between(span: int, k: int) -> int:
    """How many sets of k positions have the same ends, `span` apart."""
    return int(span == k) if min(span, k) < 2 else math.comb(span - 2, k - 2)


def sparse_parity(
    law: Within, count: int, length: int, k: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Tokens [count, length] with k fair bits at S, and whether the number of ones is odd [count]."""
    positions = law.draw(count, length, k, generator)
    background = torch.tensor([0.0, 0.0, 0.5, 0.5]).multinomial(
        count * length, replacement=True, generator=generator
    )
    bits = torch.randint(0, 2, (count, k), generator=generator)
    return background.view(count, length).scatter(1, positions, bits), bits.sum(-1) % 2


def _marked(tokens: Tensor, *, width: int) -> Tensor:
    """Tokens [N, length] between a begin and end markers, [N, width + 2]."""
    return F.pad(F.pad(tokens, (1, 0), value=BEGIN), (0, width + 1 - tokens.shape[1]), value=END)


def planted_batches(
    law: Within,
    *,
    lengths: Sequence[int],
    ks: Sequence[int],
    size: int,
    steps: int,
    seeds: Sequence[int],
) -> Iterator[Batch]:
    """Fresh samples for each step, length and k uniform on those given; targets are labels, 0 or 1."""
    # Samples of one length and one k are one operation.
    return drawn_batches(partial(_draw, law, lengths, ks), size=size, steps=steps, seeds=seeds, ahead=200)


def _draw(
    law: Within, lengths: Sequence[int], ks: Sequence[int], count: int, generator: torch.Generator
) -> Batch:
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
    return Batch(tokens, last, labels, None)


def label_losses(model: StackedTransformer, batch: Batch) -> Tensor:
    """Cross entropy of every model [S] over the labels, in nats; the model's number is the log-odds of label 1."""
    odds = model.value(batch.tokens, batch.last)
    return F.binary_cross_entropy_with_logits(odds, batch.target.float(), reduction="none").mean(1)


@torch.no_grad()
def right_labels(
    model: StackedTransformer, law: Within, *, length: int, k: int, samples: int, seed: int
) -> list[int]:
    """How many of `samples` labels each model gets right; every model sees its own samples.

    So that trials of different models are independent, and their sum is binomial given the models.
    """
    drawn, labels = sparse_parity(law, model.stack * samples, length, k, torch.Generator().manual_seed(seed))
    tokens = _marked(drawn, width=length).view(model.stack, samples, -1)
    guesses = model.value(tokens, torch.full((model.stack, samples), length + 1)) > 0
    return (guesses == labels.view(model.stack, samples).bool()).sum(1).tolist()
