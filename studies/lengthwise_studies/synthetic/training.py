"""Training a stack of models on fresh samples, each at a rate of its own, and reading off what they predict."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from lengthwise_studies.synthetic.encodings import Encoding
from lengthwise_studies.synthetic.reparameterization import Reparameterization
from lengthwise_studies.synthetic.tasks import BitTask, encode
from lengthwise_studies.synthetic.transformer import StackedTransformer


@dataclass(frozen=True, kw_only=True)
class CellScale:
    """How large a study of cells is.

    Args:
        seeds: models of each cell.
        steps: training steps; a task or an optimizer may take a multiple of them.
        batch, samples: of each model in a step, and at test.
        width, heads: of every model; the inner layer is four times as wide.
    """

    seeds: int = 5
    steps: int
    batch: int
    samples: int
    width: int
    heads: int = 4


Update = Callable[[Tensor, Tensor, Tensor], None]
"""Called with the weights [S, P] (changed in place), their gradient [S, P] and the learning rates [S, 1]."""


def sgd(weights: Tensor, gradient: Tensor, rates: Tensor) -> None:
    """One step of plain stochastic gradient descent: w - lr * g. No momentum: the paper states none."""
    weights.sub_(rates * gradient)


class Adam:
    """Adam with bias correction (betas 0.9 and 0.99) after clipping each model's gradient to norm 1."""

    BETAS = (0.9, 0.99)
    EPSILON = 1e-8
    LARGEST_NORM = 1.0

    def __init__(self, weights: Tensor) -> None:
        self._steps, self._mean, self._square = 0, torch.zeros_like(weights), torch.zeros_like(weights)

    def __call__(self, weights: Tensor, gradient: Tensor, rates: Tensor) -> None:
        """One step."""
        gradient = gradient * (self.LARGEST_NORM / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
        first, second = self.BETAS
        self._steps += 1
        self._mean.lerp_(gradient, 1 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (self._square / (1 - second**self._steps)).sqrt_().add_(self.EPSILON)
        weights.sub_(rates / (1 - first**self._steps) * self._mean / spread)


@dataclass(frozen=True)
class Optimizer:
    """How a model is trained."""

    rates: tuple[float, ...]
    """Initial learning rates to try; the one that fits the training data best is kept."""
    warmup: float
    """The share of the steps in which the rate rises from 0; then it falls along half a cosine to 0."""
    build: Callable[[Tensor], Update]
    """Makes the rule of one training, of these weights."""
    budget: int = 1
    """How many times the steps of the scale it takes; one that is slow to fit gets more."""

    def schedule(self, step: int, steps: int) -> float:
        """The factor on the learning rate at a step counted from 0."""
        rising = self.warmup * steps
        if step < rising:
            return (step + 1) / (rising + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer((5e-5, 1e-4, 5e-4), 0.0, lambda weights: sgd, budget=2),
    "adam": Optimizer((4e-3,), 0.05, Adam),
}
"""The paper's, and one that trains well."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations on one thread inside, on as many as before outside.

    A kernel here takes some tens of microseconds. Two threads wait for each other after each; where another process
    has one of the cores, a step takes over eight times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


B = TypeVar("B")


class Batch(NamedTuple):
    """What every model of a stack sees in one step, each its own samples [S, B] or [S, B, T].

    Tokens are BOS, bits, EOS, padding; `last` is the index of EOS, where a model gives its number; targets are
    reparameterized; positions are None where an encoding draws none.
    """

    tokens: Tensor
    last: Tensor
    target: Tensor
    positions: Tensor | None

    def of(self, models: list[int] | slice, samples: slice = slice(None)) -> Batch:
        """The samples of some of the models."""
        return Batch(*(None if field is None else field[models, samples] for field in self))  # type: ignore[arg-type]


def batches(
    task: BitTask,
    reparameterization: Reparameterization,
    positions: Encoding,
    *,
    longest: int,
    size: int,
    steps: int,
    seeds: Sequence[int],
) -> Iterator[Batch]:
    """Fresh samples for each step, lengths uniform on 1 .. longest."""
    draw = partial(_draw, task, reparameterization, positions, longest)
    return drawn_batches(draw, size=size, steps=steps, seeds=seeds, ahead=50)


def drawn_batches(
    draw: Callable[[int, torch.Generator], Batch], *, size: int, steps: int, seeds: Sequence[int], ahead: int
) -> Iterator[Batch]:
    """What `draw` gives of so many samples of one model, whose fields lack the first dimension, as a batch each step.

    The samples of a model depend on its seed alone: models of one seed see the same. Those of `ahead` steps are drawn
    at once, which costs less.
    """
    distinct = list(dict.fromkeys(seeds))
    column = [distinct.index(seed) for seed in seeds]
    # Not the stream that the initial weights come from.
    generators = [torch.Generator().manual_seed(seed + 2**20) for seed in distinct]
    for begin in range(0, steps, ahead):
        now = min(ahead, steps - begin)
        fields = zip(*(draw(now * size, generator) for generator in generators), strict=True)
        drawn = Batch(*(None if parts[0] is None else torch.stack(parts) for parts in fields))  # type: ignore[arg-type]
        for step in range(now):
            yield drawn.of(column, slice(step * size, (step + 1) * size))


def value_losses(model: StackedTransformer, batch: Batch) -> Tensor:
    """Mean squared error of every model [S] on its own samples."""
    return (model.value(batch.tokens, batch.last, batch.positions) - batch.target).square().mean(1)


def train(
    model: StackedTransformer,
    steps: Iterable[B],
    optimizer: Optimizer,
    *,
    count: int,
    rates: Sequence[float],
    losses: Callable[[StackedTransformer, B], Tensor] = value_losses,
) -> Iterator[Tensor]:
    """Take one step on each batch, yielding its loss of every model [S]; the model is changed in place.

    `count` is the steps of the whole schedule; `rates` are the initial learning rates of the models.
    """
    update = optimizer.build(model.flat)
    peak = torch.tensor(rates).unsqueeze(1)
    for step, batch in enumerate(steps):
        loss = losses(model, batch)
        # Each model's loss reaches only its own weights, so the sum gives every model its own gradient.
        (gradient,) = torch.autograd.grad(loss.sum(), [model.flat])
        with torch.no_grad():
            update(model.flat, gradient, peak * optimizer.schedule(step, count))
        yield loss.detach()


def final_losses(losses: Tensor) -> Tensor:
    """The mean over the last twentieth of the steps, of losses [steps, S]: [S]."""
    return losses[-max(1, round(0.05 * len(losses))) :].mean(0)


@torch.no_grad()
def predictions(model: StackedTransformer, bits: Tensor, length: int, generator: torch.Generator) -> Tensor:
    """Outputs [S, N] of every model on the same N strings of one length (bits [N, length])."""
    tokens, last = encode(bits, torch.full((len(bits),), length))
    ids = model.encoding.draw(len(bits), tokens.shape[-1], generator)
    each = (model.stack, -1, -1)
    return model.value(tokens.expand(each), last.expand(each[:2]), None if ids is None else ids.expand(each))


def _draw(
    task: BitTask,
    reparameterization: Reparameterization,
    positions: Encoding,
    longest: int,
    count: int,
    generator: torch.Generator,
) -> Batch:
    lengths = torch.randint(1, longest + 1, (count,), generator=generator)
    bits = task.draw(lengths, longest, generator)
    tokens, last = encode(bits, lengths)
    ids = positions.draw(count, tokens.shape[-1], generator)
    return Batch(tokens, last, reparameterization.apply(task.outcome(bits, lengths)), ids)
