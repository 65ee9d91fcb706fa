"""Small Transformers on planted parities, seen whole and with the first tokens cut off.

The task is that of `lengthwise.studies.sparsity.bridge`: the parity of k planted bits, flipped with probability
`noise`. The begin marker of a sample tells k. So one model of several k has the same best predictions: where the cut
took a planted bit, fewer than k are left, and the best prediction is 1/2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.studies.sparsity.planted import PlantedCorrelations, Samples
from lengthwise.synthetic.transformer import StackedTransformer

_DRAWN_AHEAD = 200
"""Steps whose samples are drawn at once."""
PROBED = 200
"""Samples whose tokens are replaced one at a time."""


@dataclass(frozen=True)
class Task:
    """Noisy parity with two views.

    Args:
        law: planted tokens and their places.
        ks: k in training, each with equal probability.
        length: T, of the whole view.
        cut: first tokens that the short view does not see.
        noise: probability that a label is flipped.
    """

    law: PlantedCorrelations
    ks: tuple[int, ...]
    length: int
    cut: int
    noise: float

    @property
    def vocabulary(self) -> int:
        """Tokens of the law, an end marker, and a begin marker for each k."""
        return self.law.vocabulary + 1 + len(self.ks)

    def draw(self, count: int, k: int, generator: torch.Generator) -> tuple[Samples, Tensor]:
        """Samples of one k, and their labels after the noise [N]."""
        samples = self.law.draw(count, self.length, k, generator)
        flipped = torch.rand(count, generator=generator) < self.noise
        return samples, samples.labels ^ flipped.long()

    def marked(self, tokens: Tensor, k: int) -> Tensor:
        """Tokens [N, T] between the begin marker of k and the end marker: [N, T + 2]."""
        begin = torch.full((len(tokens), 1), self.law.vocabulary + 1 + self.ks.index(k))
        return F.pad(torch.cat([begin, tokens], dim=1), (0, 1), value=self.law.vocabulary)

    def short(self, whole: Tensor) -> Tensor:
        """The view [..., T - cut + 2] of marked tokens [..., T + 2] without the first `cut` tokens."""
        return torch.cat([whole[..., :1], whole[..., 1 + self.cut :]], dim=-1)


@dataclass(frozen=True)
class Views:
    """What every model of a stack sees in one step, each its own samples."""

    whole: Tensor
    """[S, B, T + 2]"""
    short: Tensor
    """[S, B, T - cut + 2]"""
    labels: Tensor
    """[S, B]"""


def views(task: Task, *, size: int, steps: int, seeds: Sequence[int]) -> Iterator[Views]:
    """Fresh samples for each step, k uniform on the task's; a model's depend on its seed alone."""
    generators = {seed: torch.Generator().manual_seed(seed + 2**20) for seed in seeds}
    for begin in range(0, steps, _DRAWN_AHEAD):
        ahead = min(_DRAWN_AHEAD, steps - begin)
        drawn = {seed: _mixed(task, ahead * size, generator) for seed, generator in generators.items()}
        whole, labels = (torch.stack([drawn[seed][part] for seed in seeds]) for part in (0, 1))
        for step in range(ahead):
            part = slice(step * size, (step + 1) * size)
            yield Views(whole[:, part], task.short(whole[:, part]), labels[:, part])


def _mixed(task: Task, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    which = torch.randint(0, len(task.ks), (count,), generator=generator)
    whole, labels = torch.empty(count, task.length + 2, dtype=torch.long), torch.empty(count)
    for index, k in enumerate(task.ks):
        rows = (which == index).nonzero().squeeze(1)
        samples, flipped = task.draw(len(rows), k, generator)
        whole[rows], labels[rows] = task.marked(samples.tokens, k), flipped.float()
    return whole, labels


def odds(model: StackedTransformer, tokens: Tensor) -> Tensor:
    """Log-odds of label 1, read off the end marker: [S, B] for tokens [S, B, T]."""
    return model.value(tokens, torch.full(tokens.shape[:-1], tokens.shape[-1] - 1))


def disagreement(one: Tensor, other: Tensor) -> Tensor:
    """Jeffreys (nats) of two Bernoulli predictions from their log-odds: (p - q)(logit p - logit q)."""
    return (one.sigmoid() - other.sigmoid()) * (one - other)


@dataclass(frozen=True)
class Objective:
    """(1 - share) CE(whole) + share CE(short) + weight Jeffreys(whole, short)."""

    share: float
    weight: float


def losses_by(objectives: Sequence[Objective]) -> Callable[[StackedTransformer, Views], Tensor]:
    """The loss of every model [S] on a batch, each with its own objective."""
    share = torch.tensor([[one.share] for one in objectives])
    weight = torch.tensor([[one.weight] for one in objectives])

    def losses(model: StackedTransformer, batch: Views) -> Tensor:
        whole, short = odds(model, batch.whole), odds(model, batch.short)
        both = [
            F.binary_cross_entropy_with_logits(each, batch.labels, reduction="none")
            for each in (whole, short)
        ]
        total = (1 - share) * both[0] + share * both[1] + weight * disagreement(whole, short)
        return total.mean(1)

    return losses


@dataclass(frozen=True)
class Tested:
    """Predictions of every model [S] on N samples of one k, all models the same."""

    touched: Tensor
    """[N] whether the cut took a planted token."""
    distance: Tensor
    """[N] from the farthest planted token to the end, in tokens; 1 is the last token."""
    loss: Tensor
    """[S, N] cross entropy with all context, nats, in expectation over the noise."""
    jeffreys: Tensor
    """[S, N] nats."""
    found: Tensor
    """[S, at most `PROBED`] whether the k tokens that move the prediction most are the planted ones."""


@torch.no_grad()
def examine_views(model: StackedTransformer, task: Task, k: int, *, samples: int, seed: int) -> Tested:
    """Test every model on fresh samples.

    `found` replaces one token at a time by a symbol that means nothing (another than its own, where it is one) and
    compares the changes of the log-odds.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = task.law.draw(samples, task.length, k, generator)
    marked = task.marked(drawn.tokens, k)
    whole = odds(model, marked.expand(model.stack, -1, -1))
    short = odds(model, task.short(marked).expand(model.stack, -1, -1))
    likely = torch.where(drawn.labels.bool(), 1 - task.noise, task.noise).expand(model.stack, -1)
    loss = F.binary_cross_entropy_with_logits(whole, likely, reduction="none")
    changes, marked, whole_of = [], marked[:PROBED], whole[:, :PROBED]
    for place in range(1, task.length + 1):
        without = marked.clone()
        without[:, place] = torch.where(marked[:, place] == 2, 3, 2)
        changes.append((odds(model, without.expand(model.stack, -1, -1)) - whole_of).abs())
    top = torch.stack(changes, dim=-1).topk(k, dim=-1).indices.sort(dim=-1).values
    return Tested(
        touched=drawn.positions[:, 0] < task.cut,
        distance=task.length - drawn.positions[:, 0],
        loss=loss,
        jeffreys=disagreement(whole, short),
        found=(top == drawn.positions[:PROBED]).all(-1),
    )
