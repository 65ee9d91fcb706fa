"""Gap views: the same tokens at consecutive positions and at sampled ones.

Not new: LongReD (ACL 2025) distils a contiguous teacher into skipped positions, by hidden states; RoPE-perturbed
self-distillation (arXiv 2604.14339) by KL(student || teacher). With cross entropy alone they are PoSE.
"""

from __future__ import annotations

from lengthwise.positions.sampling.sampler import first_gap
from lengthwise.training.views.pair import Generators, StepDraw, Views


class Gap(Views):
    """long is at 0 .. L - 1, short at the positions of a sampler. Rows from the first gap on are paired."""

    def draw(self, generators: Generators) -> StepDraw:
        """See `Views`."""
        drawn = self.drawn_positions(generators)
        assert drawn is not None
        return StepDraw(first=first_gap(drawn), short_positions=drawn)
