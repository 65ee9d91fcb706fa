"""Gap views: the same tokens at consecutive positions and at sampled ones.

Not new: LongReD (ACL 2025) distils a contiguous teacher into skipped positions, by hidden states; RoPE-perturbed
self-distillation (arXiv 2604.14339) by KL(student || teacher). With cross entropy alone they are PoSE.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.errors import UsageError
from lengthwise.positions.sampling.sampler import first_gap
from lengthwise.training.views.pair import Generators, SampledPositions, StepDraw, ViewPair

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Gap:
    """long is at 0 .. L - 1, short at the positions of a sampler. Rows from the first gap on are paired."""

    def draw(
        self,
        generators: Generators,
        length: int,
        *,
        offsets: tuple[int, int] | None,
        positions: SampledPositions | None,
    ) -> StepDraw:
        """See `Views`."""
        if positions is None:
            raise UsageError(
                "gap views without positions", expected="a sampler of positions for the second view"
            )
        drawn = positions.draw(generators.positions, length)
        return StepDraw(first=first_gap(drawn), short_positions=drawn)

    def pair(
        self,
        text: NDArray[np.int64],
        draw: StepDraw,
        length: int,
        generator: np.random.Generator,
    ) -> ViewPair:
        """See `Views`."""
        return ViewPair(text, text)
