"""CLEX (Chen et al. 2023, "CLEX: Continuous Length Extrapolation for Large Language Models")."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor, nn

from lengthwise.positions.rope import Rope, ScaledRope, ntk_base
from lengthwise.settings import Finite


def clex(
    rope: Rope,
    *,
    param_factor: Annotated[Finite, Gt(0), Le(1024)] = 1.0,
    step: Annotated[Finite, Ge(0.001), Le(1)] = 0.25,
) -> ScaledRope:
    """Frequencies that solve a learned differential equation in t, the length of the input in units of L0.

    t = ceil(n / L0), at most s, for an input whose last position is n - 1; see `ClexFrequencies` for the equation.
    Before training, which this gives, it is NTK-aware scaling with alpha = 2t - 1.

    Args:
        param_factor: width of the hidden layer as a multiple of d; the layer has param_factor * d * d weights.
        step: largest step in t of the solver.
    """
    t = (
        float(rope.factor)
        if rope.length is None
        else clex_time(rope.length, rope.original_length, rope.factor)
    )
    # The frequencies are learned, so transformers has no type for them.
    return ScaledRope(rope.frequencies(ntk_base(rope.theta, rope.head_dim, 2 * t - 1)), rope.config(None))


def clex_time(length: int, original_length: int, factor: float) -> float:
    """t = ceil(n / L0), at least 1 and at most s."""
    return float(min(max(-(-length // original_length), 1), factor))


class ClexFrequencies(nn.Module):
    """Frequencies at time t >= 1.

    With n_k(t) = w_k (2t - 1)^(-2k/(d-2)), the NTK-aware frequencies at alpha = 2t - 1, the paper's equation is
    d ln f / dt = Down(tanh(Up(ln f + ln n(t)))) + d ln n / dt, ln f(1) = ln w. The last term is integrated exactly:
    ln f = ln n(t) + u, du/dt = Down(tanh(Up(2 ln n(t) + u))), u(1) = 0, and only u needs a solver (RK4, in
    float32 whatever the model's dtype). Down starts at zero, so that f = n before training.

    Nothing becomes infinite: tanh bounds u_k by (t - 1) * sum_j |Down_kj| (the original's other choice, SiLU,
    lets u grow exponentially in t), and f is cut at pi radians a token, beyond which no whole position tells
    a frequency from a lower one.

    `head_dim` is d, the part of each head that is rotated; `param_factor` and `step` are those of `clex`.
    """

    def __init__(self, theta: float, head_dim: int, *, param_factor: float = 1.0, step: float = 0.25) -> None:
        super().__init__()
        self.theta = theta
        self.head_dim = head_dim
        self.step = step
        hidden = max(1, round(param_factor * head_dim))
        # Parameters, not linear layers: an adapter on "all linear layers" is not meant for these.
        self.up = nn.Parameter(torch.empty(hidden, head_dim // 2))
        self.down = nn.Parameter(torch.zeros(head_dim // 2, hidden))
        nn.init.kaiming_uniform_(self.up, a=math.sqrt(5))

    def forward(self, t: float) -> Tensor:
        """f(t): float32 [d/2], with gradients to `up` and `down`."""
        with torch.autocast(self.up.device.type, enabled=False):
            up, down = self.up.float(), self.down.float()

            def slope(time: float, u: Tensor) -> Tensor:
                return down @ torch.tanh(up @ (2 * self._log_ntk(time) + u))

            # At t = 1 one step of no width, so that the parameters have a gradient (of zero) there too:
            # DistributedDataParallel waits for every one of them.
            steps = max(1, math.ceil((t - 1) / self.step))
            width = (t - 1) / steps
            u = torch.zeros_like(up[0])
            for index in range(steps):
                u = _runge_kutta(slope, 1 + index * width, u, width)
            return torch.exp((self._log_ntk(t) + u).clamp(max=math.log(math.pi)))

    def _log_ntk(self, t: float) -> Tensor:
        index = torch.arange(0, self.head_dim, 2, device=self.up.device, dtype=torch.float32)
        slope = math.log(self.theta) / self.head_dim + math.log(2 * t - 1) / (self.head_dim - 2)
        return -slope * index


def _runge_kutta(slope: Callable[[float, Tensor], Tensor], time: float, u: Tensor, width: float) -> Tensor:
    first = slope(time, u)
    second = slope(time + width / 2, u + width / 2 * first)
    third = slope(time + width / 2, u + width / 2 * second)
    fourth = slope(time + width, u + width * third)
    return u + width / 6 * (first + 2 * second + 2 * third + fourth)
