"""Cyclic views (RoPE-perturbed self-distillation, arXiv 2604.14339): positions rotated within the window."""

from __future__ import annotations

import torch

from lengthwise.training.views.pair import Generators, StepDraw, Views


class Cyclic(Views):
    """long is at 0 .. L - 1; token i of short is at (i + u) mod L, with u ~ U{1 .. L - 1} for a step.

    The first L - u tokens keep their distances; from there on a token has the first ones behind it at negative
    distances. Only rows from L - u on are paired.
    """

    def draw(self, generators: Generators) -> StepDraw:
        """See `Views`."""
        step = int(generators.of("place").integers(1, self.length))
        rotated = (torch.arange(self.length) + step) % self.length
        return StepDraw(first=self.length - step, short_positions=rotated)
