"""Cyclic views (RoPE-perturbed self-distillation, arXiv 2604.14339): positions rotated within the window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lengthwise.errors import UsageError
from lengthwise.training.views.pair import Generators, SampledPositions, StepDraw, ViewPair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """long is at 0 .. L - 1; token i of short is at (i + u) mod L, with u ~ U{1 .. L - 1} for a step.

    The first L - u tokens keep their distances; from there on a token has the first ones behind it at negative
    distances. Only rows from L - u on are paired.
    """

    def draw(
        self,
        generators: Generators,
        length: int,
        *,
        offsets: tuple[int, int] | None,
        positions: SampledPositions | None,
    ) -> StepDraw:
        """See `Views`."""
        if positions is not None:
            raise UsageError(
                "cyclic views with sampled positions", expected="no sampler: the window is rotated"
            )
        step = int(generators.place.integers(1, length))
        return StepDraw(first=length - step, short_positions=(torch.arange(length) + step) % length)

    def pair(
        self,
        text: NDArray[np.int64],
        draw: StepDraw,
        length: int,
        generator: np.random.Generator,
    ) -> ViewPair:
        """See `Views`."""
        return ViewPair(text, text)
