"""Distractor views: something irrelevant is put into the context. The data idea is NExtLong's (ICML 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.errors import UsageError
from lengthwise.training.views.pair import (
    Generators,
    SampledPositions,
    StepDraw,
    ViewPair,
    require_in_range,
    without_targets,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Distractor:
    """long is A B of one text; short is A D B, with D from another place of the corpus, cut to L tokens.

    D has d ~ U{shortest * L .. longest * L} tokens and is put after a ~ U{1 .. L - d - 1} tokens of A, one draw for a
    step. Rows of B are paired, from the one that has read its first token. With a sampler the short view is at its
    positions. The first tokens of D and of B after D are no targets.
    """

    shortest: float = 0.125
    """Of D, as a share of the window."""
    longest: float = 0.5
    """Of D, as a share of the window."""

    def __post_init__(self) -> None:
        require_in_range("shortest", self.shortest, 0, 1)
        require_in_range("longest", self.longest, self.shortest, 1)

    def draw(
        self,
        generators: Generators,
        length: int,
        *,
        offsets: tuple[int, int] | None,
        positions: SampledPositions | None,
    ) -> StepDraw:
        """See `Views`."""
        least, most = max(1, int(self.shortest * length)), min(int(self.longest * length), length - 2)
        if most < least:
            raise UsageError(
                f"no distractor of {self.shortest:g} to {self.longest:g} of {length} tokens leaves text before and "
                "after it",
                expected="a longer window, or a smaller shortest",
            )
        generator = generators.place
        size = int(generator.integers(least, most + 1))
        before = int(generator.integers(1, length - size))
        drawn = None if positions is None else positions.draw(generators.positions, length)
        return StepDraw(-size, before + size, short_positions=drawn)

    def pair(
        self,
        text: NDArray[np.int64],
        draw: StepDraw,
        length: int,
        generator: np.random.Generator,
        foreign: NDArray[np.int64] | None,
    ) -> ViewPair:
        """See `Views`."""
        size, before = -draw.offset, draw.first + draw.offset
        if foreign is None:
            raise UsageError(
                "samples without foreign text, and distractor views put it in",
                expected="the items of a WindowDataset with views=distractor, or a column `foreign` of token ids",
            )
        inserted = np.stack([foreign[:size]] * 2)
        short = np.concatenate([text[:, :before], inserted, text[:, before : length - size]], axis=1)
        without_targets(short, [before, draw.first])
        return ViewPair(text, short)
