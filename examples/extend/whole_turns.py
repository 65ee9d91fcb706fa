"""Position interpolation of the slow frequencies alone: NTK-by-parts without its ramp."""

from __future__ import annotations

import math

import torch

from lengthwise.positions.rope import Rope, ScaledRope
from lengthwise.settings import Positive


def whole_turns(rope: Rope, *, turns: Positive = 1.0) -> ScaledRope:
    """w_k where it turns often enough in training, L0 w_k >= 2 pi r, else w_k / s.

    Args:
        turns: r, how often a frequency that stays turns over the original length.
    """
    plain = rope.frequencies()
    turning = rope.original_length * plain >= 2 * math.pi * turns
    # transformers has no such rope type.
    return ScaledRope(torch.where(turning, plain, plain / rope.factor), rope.config(None))
