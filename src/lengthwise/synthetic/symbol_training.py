"""Training a stack of models on strings of symbols, and how much of their answers is right."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.synthetic.tasks.symbols import IGNORED, SymbolBatch, SymbolTask, symbol_batch
from lengthwise.synthetic.transformer import StackedTransformer


@dataclass(frozen=True)
class Accuracy:
    """How much of the answers a model gets right, by model [S]."""

    tokens: Tensor
    """Share of the answers' symbols, the end marker included, each given the right ones before it."""
    symbols: Tensor
    """The same without the end marker, whose place gives it away where answers have one symbol."""
    exact: Tensor
    """Share of answers without a mistake: what greedy decoding gets right from beginning to end."""


def symbol_batches(
    task: SymbolTask, *, longest: int, size: int, steps: int, seeds: Sequence[int]
) -> Iterator[SymbolBatch]:
    """Fresh samples [S, B, T] for each step, lengths uniform on 1 .. longest; a model's depend on its seed alone."""
    sources = [random.Random(seed) for seed in seeds]
    for _ in range(steps):
        own = [
            symbol_batch(task, [source.randint(1, longest) for _ in range(size)], source)
            for source in sources
        ]
        width = max(batch.tokens.shape[-1] for batch in own)
        end = len(task.vocabulary) - 1
        yield SymbolBatch(
            torch.stack([_padded(batch.tokens, width, end) for batch in own]),
            torch.stack([_padded(batch.labels, width, IGNORED) for batch in own]),
        )


def symbol_losses(model: StackedTransformer, batch: SymbolBatch) -> Tensor:
    """Cross entropy of every model [S] over the symbols asked for, in nats."""
    logits = model.logits(batch.tokens)
    losses = F.cross_entropy(
        logits.flatten(0, 2), batch.labels.flatten(), ignore_index=IGNORED, reduction="none"
    )
    asked = (batch.labels != IGNORED).flatten(1)
    return losses.unflatten(0, batch.labels.shape).flatten(1).sum(1) / asked.sum(1)


@torch.no_grad()
def symbol_accuracy(
    model: StackedTransformer, task: SymbolTask, *, length: int, samples: int, seed: int
) -> Accuracy:
    """Accuracy on the same `samples` questions of one length for every model."""
    batch = symbol_batch(task, [length] * samples, random.Random(seed))
    logits = model.logits(batch.tokens.expand(model.stack, -1, -1))
    asked = batch.labels != IGNORED
    right = (logits.argmax(-1) == batch.labels) & asked
    inner = asked & (batch.labels != len(task.vocabulary) - 1)
    # Right at every place given the right ones before it is what greedy decoding gets right.
    return Accuracy(
        tokens=right.flatten(1).sum(1) / asked.sum(),
        symbols=(right & inner).flatten(1).sum(1) / inner.sum().clamp(min=1),
        exact=(right | ~asked).all(-1).float().mean(1),
    )


def _padded(x: Tensor, width: int, value: int) -> Tensor:
    return F.pad(x, (0, width - x.shape[-1]), value=value)
