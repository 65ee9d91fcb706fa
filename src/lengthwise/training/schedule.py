"""The learning rate over the steps."""

from __future__ import annotations

import math


def learning_rate_share(
    step: int, *, steps: int, warmup_steps: int, schedule: str, last_share: float
) -> float:
    """The share of the peak learning rate with which update `step` (0-based) of `steps` is made.

    Warm-up rises evenly, (step + 1) / warmup_steps, so the first update is not wasted on a rate of zero.
    After it, with u = (step + 1 - warmup_steps) / (steps - warmup_steps) in (0, 1]:

        cosine    last_share + (1 - last_share) * (1 + cos(pi * u)) / 2
        linear    last_share + (1 - last_share) * (1 - u)
        constant  1

    so the last update has exactly `last_share`. cosine equals transformers' `cosine_warmup_with_min_lr`
    with `min_lr_rate = last_share`.
    """
    done = step + 1
    if done <= warmup_steps:
        return done / warmup_steps
    # The scheduler also asks for the step after the last one; it keeps the last one's rate.
    progress = min(1.0, (done - warmup_steps) / max(1, steps - warmup_steps))
    falling = {
        "cosine": (1 + math.cos(math.pi * progress)) / 2,
        "linear": 1 - progress,
        "constant": 1.0,
    }[schedule]
    return last_share + (1 - last_share) * falling
