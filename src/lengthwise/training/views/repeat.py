"""Repeat views: gap views of windows in which an earlier passage comes again behind the largest gap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from annotated_types import Ge, Le

from lengthwise.positions.sampling.sampler import largest_gap
from lengthwise.settings import Finite, Whole
from lengthwise.training.views.gap import Gap
from lengthwise.training.views.pair import NO_TARGET, StepDraw

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lengthwise.training.views.pair import RowPair

_LEAST = 8
"""Tokens of a passage. The first few of a repeat cannot be known to be one, so a shorter one teaches nothing."""


class Repeat(Gap):
    """A window's passage is planted again behind the gap: near in the long view, far in the short one.

    Of several gaps the largest counts. The passage is text[s : s + m] with s + m <= the gap (but see `source`), and
    overwrites m tokens behind it. m is `passage`, or what fits on either side of the gap. A window without a gap gets
    no repeat. The first token of the repeat and the one after it are no targets, because nothing before them tells
    them. Copying is what this trains, so `recall` and `limit` no longer tell whether the model uses far context for
    anything else.
    """

    share: Annotated[Finite, Ge(0), Le(1)] = 0.5
    """Share of the windows that get a repeat."""
    passage: Annotated[Whole, Ge(_LEAST), Le(10**8)] = 64
    """m in tokens, at most."""
    place: Literal["end", "anywhere"] = "end"
    """Where behind the gap the repeat begins: so that it ends the window, or uniformly."""
    source: Literal["before", "anywhere"] = "before"
    """Where the passage is from: before the gap, or anywhere before the repeat, so that distance does not tell."""

    def pair(self, text: NDArray[np.int64], draw: StepDraw, generator: np.random.Generator) -> RowPair:
        """See `Views`."""
        assert draw.short_positions is not None
        cut = largest_gap(draw.short_positions)
        size = min(self.passage, cut, self.length - cut)
        planted = generator.random() < self.share
        if not planted or size < _LEAST:
            return text, text
        last = self.length - size
        place = last if self.place == "end" else int(generator.integers(cut, last + 1))
        before = cut if self.source == "before" else place
        source = int(generator.integers(0, before - size + 1))
        view = text.copy()
        view[:, place : place + size] = text[:, source : source + size]
        view[1, [place, *range(place + size, min(place + size + 1, self.length))]] = NO_TARGET
        return view, view
