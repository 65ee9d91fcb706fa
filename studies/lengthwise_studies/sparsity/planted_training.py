"""Small Transformers on planted correlations: batches of many lengths and k, the loss, and accuracy by both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.planted import PlantedCorrelations
from lengthwise_studies.synthetic.transformer import StackedTransformer

_DRAWN_AHEAD = 200
"""Steps whose samples are drawn at once: samples of one length and one k are one operation."""


@dataclass(frozen=True)
class PlantedBatch:
    """What every model of a stack sees in one step, each its own samples."""

    tokens: Tensor
    """[S, B, T] begin marker, tokens, end markers as padding."""
    last: Tensor
    """[S, B] index of the first end marker, which is asked for the label."""
    labels: Tensor
    """[S, B] 0 or 1."""


def marked(tokens: Tensor, vocabulary: int, *, width: int) -> Tensor:
    """Tokens [N, length] between a begin and end markers, [N, width + 2]."""
    begin = torch.full((len(tokens), 1), vocabulary)
    return F.pad(torch.cat([begin, tokens], dim=1), (0, width + 1 - tokens.shape[1]), value=vocabulary + 1)


def planted_batches(
    law: PlantedCorrelations,
    *,
    lengths: Sequence[int],
    ks: Sequence[int],
    size: int,
    steps: int,
    seeds: Sequence[int],
) -> Iterator[PlantedBatch]:
    """Fresh samples for each step, length and k uniform on those given; a model's depend on its seed alone.

    Raises:
        UsageError: no lengths or no ks; a k above the shortest length.
    """
    if not lengths or not ks or max(ks) > min(lengths):
        raise UsageError(
            f"k up to {max(ks, default=0)} at lengths from {min(lengths, default=0)}",
            expected="one length and one k or more, no k above the shortest length",
        )
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
    law: PlantedCorrelations,
    lengths: Sequence[int],
    ks: Sequence[int],
    count: int,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    longest = max(lengths)
    kinds = torch.randint(0, len(lengths) * len(ks), (count,), generator=generator)
    tokens = torch.empty(count, longest + 2, dtype=torch.long)
    last, labels = torch.empty(count, dtype=torch.long), torch.empty(count, dtype=torch.long)
    for kind in kinds.unique().tolist():
        rows = (kinds == kind).nonzero().squeeze(1)
        length, k = lengths[kind // len(ks)], ks[kind % len(ks)]
        samples = law.draw(len(rows), length, k, generator)
        tokens[rows] = marked(samples.tokens, law.vocabulary, width=longest)
        last[rows] = length + 1
        labels[rows] = samples.labels
    return tokens, last, labels


def label_losses(model: StackedTransformer, batch: PlantedBatch) -> Tensor:
    """Cross entropy of every model [S] over the labels, in nats; the model's number is the log-odds of label 1."""
    odds = model.value(batch.tokens, batch.last)
    return F.binary_cross_entropy_with_logits(odds, batch.labels.float(), reduction="none").mean(1)


@torch.no_grad()
def right_labels(
    model: StackedTransformer, law: PlantedCorrelations, *, length: int, k: int, samples: int, seed: int
) -> Tensor:
    """How many of `samples` labels each model [S] gets right; every model sees its own samples.

    So that trials of different models are independent, and their sum is binomial given the models.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = law.draw(model.stack * samples, length, k, generator)
    tokens = marked(drawn.tokens, law.vocabulary, width=length).view(model.stack, samples, -1)
    last = torch.full((model.stack, samples), length + 1)
    guesses = model.value(tokens, last) > 0
    return (guesses == drawn.labels.view(model.stack, samples).bool()).sum(1)
