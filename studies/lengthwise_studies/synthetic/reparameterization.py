"""Output reparameterizations f (OutRep, Sec. 3): train on f(y), map predictions back with the inverse of f.

`shift=1` means f(y + 1), for tasks whose outcome can be 0; the paper does not say what it does there.
`constant_error` and `length_alone_error` are exact errors of predictors that need no model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.tasks import BitTask


@dataclass(frozen=True)
class Reparameterization:
    """f(y + shift), monotonic, with the inverse of f.

    Example:
        >>> root = FUNCTIONS["1/sqrt"]
        >>> root.apply(torch.tensor([4.0, 25.0]))
        tensor([0.5000, 0.2000])
        >>> root.invert(torch.tensor([0.5, -0.1]), lowest=1, highest=100)
        (tensor([  4.0000, 100.0000]), tensor([False,  True]))
    """

    name: str
    forward: Callable[[Tensor], Tensor]
    inverse: Callable[[Tensor], Tensor]
    shift: int = 0

    def apply(self, y: Tensor) -> Tensor:
        """f(y + shift)."""
        return self.forward(y + self.shift)

    def invert(self, z: Tensor, *, lowest: float, highest: float) -> tuple[Tensor, Tensor]:
        """Predictions in original units, and which of them had to be clamped.

        The inverse of f is undefined or explodes outside of f's image (1/sqrt at and below 0), so `z` is first
        clamped to f of [lowest, highest]. Identity needs no clamp and gets none.
        """
        if self.name == "identity":
            return z - self.shift, torch.zeros_like(z, dtype=torch.bool)
        ends = self.apply(torch.tensor([lowest, highest], dtype=z.dtype))
        within = z.clamp(ends.min(), ends.max())
        return self.inverse(within) - self.shift, within != z


IDENTITY = Reparameterization("identity", lambda y: y, lambda z: z)
"""No reparameterization."""
_ALL = (
    IDENTITY,
    Reparameterization("sqrt", torch.sqrt, torch.square),
    Reparameterization("log", torch.log, torch.exp),
    Reparameterization("1/sqrt", torch.rsqrt, lambda z: z**-2),
    Reparameterization("1/x", torch.reciprocal, torch.reciprocal),
    Reparameterization("1/log(x+1)", lambda y: 1 / torch.log1p(y), lambda z: torch.expm1(1 / z)),
)
FUNCTIONS: dict[str, Reparameterization] = {function.name: function for function in _ALL}


def reparameterization(name: str, task: BitTask, *, shift: int = 0) -> Reparameterization:
    """The reparameterization of that name; `UsageError` where it is undefined at an outcome of the task."""
    function = replace(FUNCTIONS[name], shift=shift)
    lowest = task.outcomes(1).values.min()
    if not function.apply(lowest).isfinite():
        raise UsageError(
            f"{name} is undefined at {lowest + shift:g}, which is an outcome of the task {task.name}"
            + (f" (shifted by {shift})" if shift else ""),
            expected="a function that is defined at every outcome",
            fix=f"train on f(y + {1 + shift}): shift={1 + shift}",
        )
    return function


def best_constant(task: BitTask, function: Reparameterization, *, train_length: int) -> float:
    """The constant that fits f of the outcomes at lengths 1 .. train_length best: their mean."""
    laws = [task.outcomes(length) for length in range(1, train_length + 1)]
    means = [(law.probabilities * function.apply(law.values)).sum() for law in laws]
    return torch.stack(means).mean().item()


def constant_error(
    task: BitTask, function: Reparameterization, *, train_length: int, length: int
) -> tuple[float, float]:
    """Mean squared error at `length` of the best constant, in original units and in units of f."""
    z = torch.tensor(best_constant(task, function, train_length=train_length), dtype=torch.float64)
    # The mean of values of f lies in the image of f.
    y, _ = function.invert(z, lowest=float(task.outcomes(1).values.min()), highest=1e9)
    values, probabilities = task.outcomes(length)
    differences = (values - y, function.apply(values) - z)
    original, transformed = ((probabilities * one.square()).sum().item() for one in differences)
    return original, transformed


def length_alone_error(task: BitTask, *, length: int) -> float:
    """Mean squared error of the best predictor that knows only the length: the variance of the outcome."""
    values, probabilities = task.outcomes(length)
    return (probabilities * (values - (probabilities * values).sum()).square()).sum().item()
