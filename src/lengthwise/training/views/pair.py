"""What a pair of views is: what a step draws for all its samples, and how a sample becomes two rows."""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import torch
from pydantic import PrivateAttr
from torch import Tensor

from lengthwise.settings import Settings
from lengthwise.training.views.positions import Positions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    RowPair = tuple[NDArray[np.int64], NDArray[np.int64]]
    """The long and the short view of one sample, [2, L] each: tokens, and targets (NO_TARGET where there is none)."""

NO_TARGET = -100
Purpose = Literal["offset", "positions", "place", "sample"]
"""What is drawn: the offset between truncated views, sampled positions, what else all samples of a step share, and
what a sample has for itself (`Generators.key` is then its tokens)."""
_STREAMS: dict[Purpose, int] = {"offset": 4, "positions": 5, "place": 6, "sample": 7}


@dataclass(frozen=True)
class Generators:
    """The random generators of one step: one for each purpose, so that a new draw does not move the others."""

    seed: int
    key: tuple[int, ...]
    """The step; or the first tokens of a batch that is no step of a WindowDataset."""

    def of(self, purpose: Purpose) -> np.random.Generator:
        """The generator of a purpose."""
        return np.random.default_rng([self.seed, _STREAMS[purpose], *self.key])


@dataclass(frozen=True)
class StepDraw:
    """What all samples of an optimizer step share."""

    offset: int = 0
    """e, tokens: row r of the short view faces row r + e of the long one."""
    first: int = 0
    """The first row of the short view that is paired: before it both views see the same."""
    long_positions: Tensor | None = None
    """[L]; None is 0 .. L - 1."""
    short_positions: Tensor | None = None

    def equals(self, other: StepDraw) -> bool:
        """Whether both draw the same; the two may have come from different worker processes."""
        return (self.offset, self.first) == (other.offset, other.first) and all(
            (a is None) == (b is None) and (a is None or b is None or torch.equal(a, b))
            for a, b in (
                (self.long_positions, other.long_positions),
                (self.short_positions, other.short_positions),
            )
        )


class Views(Settings, abc.ABC):
    """A way to make two views of one stretch of text. The fields of its class are its options."""

    _length: int = PrivateAttr(0)
    _offsets: tuple[int, int] = PrivateAttr((0, 0))
    _positions: Positions | None = PrivateAttr(None)

    @property
    def length(self) -> int:
        """L, tokens in each view."""
        return self._length

    @property
    def offsets(self) -> tuple[int, int]:
        """First and last offset e; (0, 0) of views that do not truncate."""
        return self._offsets

    def placed(self, length: int, offsets: tuple[int, int], positions: Positions | None) -> Self:
        """The same views of windows of this length, with these offsets and positions."""
        views = self.model_copy()
        views._length, views._offsets, views._positions = length, offsets, positions
        return views

    def drawn_positions(self, generators: Generators) -> Tensor | None:
        """Sampled position ids [L] of a step; None for 0 .. L-1."""
        return (
            None
            if self._positions is None
            else self._positions.draw(generators.of("positions"), self._length)
        )

    @abc.abstractmethod
    def draw(self, generators: Generators) -> StepDraw:
        """What the samples of a step share."""

    def pair(self, text: NDArray[np.int64], draw: StepDraw, generator: np.random.Generator) -> RowPair:
        """The views of one sample; unless a class says otherwise, both are the text.

        At paired rows (`PairGeometry(length, draw.offset, draw.first)`) both have the same next token as target.

        Args:
            text: tokens and targets [2, L + e].
            draw: of the sample's step.
            generator: for what the sample has for itself.
        """
        return text, text
