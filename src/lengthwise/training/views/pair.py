"""What a pair of views is: what a step draws for all its samples, and how a sample becomes two rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.positions import position_sampler
from lengthwise.positions.sampling.sampler import PositionSampler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.training.recipe import Positions

NO_TARGET = -100


@dataclass(frozen=True, kw_only=True)
class SampledPositions:
    """Position ids for windows: a sampler, and the length that its positions are to cover."""

    sampler: PositionSampler
    target_length: int
    """T, tokens."""

    def draw(self, generator: np.random.Generator, length: int) -> Tensor:
        """Position ids [L]."""
        return self.sampler.draw(generator, length, self.target_length)


def sampled_positions(section: Positions | None) -> SampledPositions | None:
    """A recipe's sampler; None for positions 0 .. L-1.

    Raises:
        UsageError: no such sampler, or not with these options.
    """
    if section is None:
        return None
    sampler = position_sampler(section.sampler, section.options)
    return SampledPositions(sampler=sampler, target_length=section.target_length)


@dataclass(frozen=True)
class Generators:
    """The random generators of one step: one for each purpose, so that a new draw does not move the others."""

    seed: int
    key: tuple[int, ...]
    """The step; or the first tokens of a batch that is no step of a WindowDataset."""

    def _of(self, purpose: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, purpose, *self.key])

    @property
    def offset(self) -> np.random.Generator:
        """Of the offset between truncated views."""
        return self._of(4)

    @property
    def positions(self) -> np.random.Generator:
        """Of the sampled positions."""
        return self._of(5)

    @property
    def place(self) -> np.random.Generator:
        """Of everything else that all samples of a step share."""
        return self._of(6)

    @property
    def sample(self) -> np.random.Generator:
        """Of what a sample has for itself; `key` is then its tokens."""
        return self._of(7)


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


class ViewPair(NamedTuple):
    """Two views of one sample, [2, L] each: tokens, and targets (-100 where a token is no target)."""

    long: NDArray[np.int64]
    short: NDArray[np.int64]


class Views(Protocol):
    """A way to make two views of one stretch of text: a frozen dataclass whose fields are its options."""

    def draw(
        self,
        generators: Generators,
        length: int,
        *,
        offsets: tuple[int, int] | None,
        positions: SampledPositions | None,
    ) -> StepDraw:
        """What the samples of a step share.

        Raises:
            UsageError: the options do not fit windows of `length`.
        """
        ...

    def pair(
        self,
        text: NDArray[np.int64],
        draw: StepDraw,
        length: int,
        generator: np.random.Generator,
    ) -> ViewPair:
        """The views of one sample.

        At paired rows (`PairGeometry(length, draw.offset, draw.first)`) both have the same next token as target.

        Args:
            text: tokens and targets [2, L + e].
            draw: of the sample's step.
            length: L.
            generator: for what the sample has for itself.
        """
        ...


def require_in_range(what: str, value: float, low: float, high: float) -> None:
    """Raise UsageError unless low <= value <= high."""
    if not low <= value <= high:
        raise UsageError(f"{what} = {value:g}", expected=f"{low:g} to {high:g}")


def without_targets(view: NDArray[np.int64], rows: Sequence[int]) -> None:
    """Make the tokens at `rows` no targets, in place: what precedes them does not tell them."""
    view[1, list(rows)] = NO_TARGET
