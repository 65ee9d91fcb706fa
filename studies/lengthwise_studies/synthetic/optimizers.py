"""Optimizers of a stack of models, a learning rate for each model: the paper's, and one that trains well."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise_studies.synthetic import named

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

    def __init__(self) -> None:
        self._steps = 0
        self._mean: Tensor | None = None
        self._square: Tensor | None = None

    def __call__(self, weights: Tensor, gradient: Tensor, rates: Tensor) -> None:
        """One step."""
        gradient = gradient * (self.LARGEST_NORM / (gradient.norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1)
        if self._mean is None or self._square is None:
            self._mean, self._square = torch.zeros_like(weights), torch.zeros_like(weights)
        first, second = self.BETAS
        self._steps += 1
        self._mean.lerp_(gradient, 1 - first)
        self._square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        spread = (self._square / (1 - second**self._steps)).sqrt_().add_(self.EPSILON)
        weights.sub_(rates / (1 - first**self._steps) * self._mean / spread)


@dataclass(frozen=True)
class Optimizer:
    """How a model is trained.

    Args:
        rates: initial learning rates to try; the one that fits the training data best is kept.
        warmup: share of the steps in which the rate rises from 0; then it falls along half a cosine to 0.
        build: makes the rule of one training.
        budget: how many times the steps of the scale it takes; one that is slow to fit gets more.
    """

    rates: tuple[float, ...]
    warmup: float
    build: Callable[[], Update]
    budget: int = 1

    def schedule(self, step: int, steps: int) -> float:
        """The factor on the learning rate at a step counted from 0."""
        rising = self.warmup * steps
        if step < rising:
            return (step + 1) / (rising + 1)
        return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))


OPTIMIZERS: dict[str, Optimizer] = {
    "sgd": Optimizer((5e-5, 1e-4, 5e-4), 0.0, lambda: sgd, budget=2),
    "adam": Optimizer((4e-3,), 0.05, Adam),
}
"""The paper's, and one that trains well."""


def optimizer_named(name: str) -> Optimizer:
    """The optimizer of that name.

    Raises:
        UsageError: there is none.
    """
    return named(OPTIMIZERS, name, "optimizer")
