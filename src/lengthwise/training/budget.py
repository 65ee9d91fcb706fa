"""A budget in nats in place of alpha: the largest weight at which the cross entropy stays within it. Needs no
torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from lengthwise.config import validate
from lengthwise.errors import LengthwiseError, UsageError

# Share of the old average in the new one, so about 20 steps count. The excess is a difference on the same tokens, so
# its noise is small: on tiny-books a standard deviation of 0.01 to 0.015 nats with 500 tokens a step, where the cross
# entropy itself varies by 0.15. The average has a sixth of it. One over 50 steps lags so much that the loop swings.
SMOOTHING = 0.95

# What a step adds to log alpha while the budget is unused: a factor of ten takes 46 steps, whatever the model's
# speed.
RATE = 0.05

# What a change of the excess by one budget takes from log alpha at once. The model answers a new alpha only after
# tens to hundreds of steps. Without this term the excess in the tests' closed form peaks at 4.5 budgets for a
# model that takes 500 steps, and swings; with it at 1.8.
DAMPING = 2.0

# The first weight if the divergence is zero at the start, when no scale is known, and otherwise the largest first
# one.
START = 1.0

# Range of alpha as factors of the first weight. At its upper end cross entropy hardly counts. At its lower end the
# divergence does not: an excess that remains comes from the text or the learning rate. The way back takes 140 steps.
HIGHEST, LOWEST = 1e4, 1e-3


@dataclass(kw_only=True)
class Budget:
    """The weight alpha of a divergence D by dual ascent: the largest one that a budget for cross entropy allows.

    With theta_0 the model before training it solves

        minimise D(theta)  subject to  CE(theta) - CE(theta_0) <= nats

    Its Lagrangian is D + m (CE - CE_0 - nats) with the multiplier m, so the model minimises CE + alpha D with
    alpha = 1/m. Ascent in log m is descent in log alpha. With v the averaged excess CE - CE_0 over the budget, as a
    share of the budget and cut to [-1, 1], each step adds

        -RATE * v - DAMPING * (v - last v)

    to log alpha. The first term is dual ascent with a multiplicative step (Rezende and Viola 2018, "Taming
    VAEs"); the second is the proportional term of Stooke, Achiam and Abbeel 2020 ("Responsive Safety in
    Reinforcement Learning by PID Lagrangian Methods"), without which the excess overshoots. Only log alpha and v
    enter, so the scale of D does not matter.

    The first step has alpha = 0 and measures D(theta_0). Then alpha starts at nats / D(theta_0): a minimiser
    theta of CE + alpha D has CE(theta) - CE(theta_0) <= alpha D(theta_0), so it keeps the budget (for the cross
    entropy that is trained: with both views, their mean).

    The comparison is with theta_0 and not with a run without D. What training gains on the text is added to what D
    may cost. What it loses (a learning rate that is too high) is subtracted: if the excess stays above the budget
    although alpha is LOWEST times its start, D is not the cause. If the budget is never used up, alpha grows to its
    ceiling (or HIGHEST times its start).

    A trainer calls `update` once in each optimizer step, after the last micro-batch and before the next step's
    loss: with the step's plain cross entropy on the long view, that of the initial model on the same rows
    (`initial_cross_entropy` in `InitialModel.active(model, extended=True)`), and the divergence. Each is a sum
    over micro-batches and processes divided by the count of the whole step, the same number in every process, so
    alpha is the same too. The returned alpha is the weight of the next step. `alpha`, `excess` and `nats` belong
    in the log; a checkpoint keeps the state with `BudgetState`.

    Raises:
        UsageError: a budget that is not above 0, or a ceiling that is not.
    """

    nats: float
    """The budget in nats per token; 0.01 is one percent in perplexity."""
    ceiling: float | None = None
    """Largest alpha, below the weight that sharpens without end (`Objective.sharpening_limit`); None leaves HIGHEST
    alone."""
    alpha: float = 0.0
    """Weight of the next step."""
    start: float = 0.0
    """The first weight after the step that measured D(theta_0)."""
    average: float = 0.0
    """Exponential average of the excess, from 0, without correction for its first steps."""
    steps: int = 0
    """Updates so far."""

    def __post_init__(self) -> None:
        for name, value in (("budget", self.nats), ("ceiling", self.ceiling)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} = {value:g}", expected="a finite number above 0")

    @property
    def excess(self) -> float:
        """CE - CE_0 in nats per token, averaged over about the last 20 steps; 0 before the first."""
        return self.average / (1 - SMOOTHING**self.steps) if self.steps else 0.0

    def update(self, cross_entropy: float, initial_cross_entropy: float, divergence: float) -> float:
        """Take one step's numbers; the alpha of the next step.

        Args:
            cross_entropy: of the model on the plain view, nats per token.
            initial_cross_entropy: of the initial model on the same tokens.
            divergence: D of this step; only that of the first step is used.

        Raises:
            LengthwiseError: a number is NaN or infinite; the state does not change.
        """
        given = {"model": cross_entropy, "initial model": initial_cross_entropy, "divergence": divergence}
        if not all(map(math.isfinite, given.values())):
            raise LengthwiseError(
                "the budget's step has " + ", ".join(f"{name} {value:g}" for name, value in given.items()),
                expected="finite cross entropies and a finite divergence",
                fix="lower the learning rate, or check the initial model on the long view's positions",
            )
        last = self._violation
        self.average = SMOOTHING * self.average + (1 - SMOOTHING) * (cross_entropy - initial_cross_entropy)
        self.steps += 1
        if self.steps == 1:
            highest = START if self.ceiling is None else min(START, self.ceiling)
            self.start = self.alpha = min(highest, self.nats / divergence) if divergence > 0 else highest
            return self.alpha
        change = -RATE * self._violation - DAMPING * (self._violation - last)
        highest = self.start * HIGHEST if self.ceiling is None else min(self.start * HIGHEST, self.ceiling)
        self.alpha = min(max(self.alpha * math.exp(change), self.start * LOWEST), highest)
        return self.alpha

    def to_dict(self) -> dict[str, Any]:
        """Settings and state as plain values; a JSON round trip gives an equal object."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Budget:
        """The budget that `to_dict` wrote.

        Raises:
            UsageError: a value is missing, unknown or of the wrong type.
        """
        return validate(cls, value, source="the state of the budget")

    def resume(self, earlier: Budget) -> None:
        """Continue from the state of an earlier budget, with the settings of this one."""
        self.alpha, self.start = earlier.alpha, earlier.start
        self.average, self.steps = earlier.average, earlier.steps

    @property
    def _violation(self) -> float:
        return max(-1.0, min(1.0, (self.excess - self.nats) / self.nats))
