"""What needs no model: the errors of trivial predictors, exactly."""

from __future__ import annotations

import torch

from lengthwise.synthetic.reparameterization import Reparameterization
from lengthwise.synthetic.tasks.bits import BitTask


def best_constant(task: BitTask, reparameterization: Reparameterization, *, train_length: int) -> float:
    """The constant that fits f of the outcomes at lengths 1 .. train_length best: their mean."""
    means = []
    for length in range(1, train_length + 1):
        law = task.outcomes(length)
        means.append((law.probabilities * reparameterization.apply(law.values)).sum())
    return torch.stack(means).mean().item()


def constant_error(
    task: BitTask, reparameterization: Reparameterization, *, train_length: int, length: int
) -> tuple[float, float]:
    """Mean squared error at `length` of the best constant, in original units and in units of f."""
    constant = best_constant(task, reparameterization, train_length=train_length)
    law = task.outcomes(length)
    transformed = (law.probabilities * (reparameterization.apply(law.values) - constant).square()).sum()
    z = torch.tensor(constant, dtype=torch.float64)
    # The mean of values of f lies in the image of f.
    original, _ = reparameterization.invert(z, lowest=float(task.outcomes(1).values.min()), highest=1e9)
    return (law.probabilities * (law.values - original).square()).sum().item(), transformed.item()


def length_alone_error(task: BitTask, *, length: int) -> float:
    """Mean squared error of the best predictor that knows only the length: the variance of the outcome."""
    law = task.outcomes(length)
    mean = (law.probabilities * law.values).sum()
    return (law.probabilities * (law.values - mean).square()).sum().item()
