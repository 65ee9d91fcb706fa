"""The paper's views (Sec. 4.2): the same end of a text with more and with less context."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.training.views.pair import Generators, StepDraw, Views

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from lengthwise.training.views.pair import RowPair


class Truncation(Views):
    """long is text[0 : L], short is text[e : e + L], with one e ~ U{first .. last} for a step (Appendix D).

    With sampled positions both views are at the same ones. A long and a short view agree best if far context is
    ignored, so agreement alone does not reward its use.
    """

    def draw(self, generators: Generators) -> StepDraw:
        """See `Views`."""
        low, high = self.offsets
        drawn = self.drawn_positions(generators)
        offset = int(generators.of("offset").integers(low, high + 1))
        return StepDraw(offset, long_positions=drawn, short_positions=drawn)

    def pair(self, text: NDArray[np.int64], draw: StepDraw, generator: np.random.Generator) -> RowPair:
        """See `Views`."""
        return text[:, : self.length], text[:, draw.offset : draw.offset + self.length]
