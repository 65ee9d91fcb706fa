"""Where sampled positions come from: a sampler, its options, and the length that it covers. Needs no torch."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Self

from annotated_types import Ge, Le
from pydantic import Field, model_validator

from lengthwise.positions import position_sampler
from lengthwise.settings import Settings, Whole

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from lengthwise.positions.sampling.sampler import PositionSampler

Tokens = Annotated[Whole, Ge(1), Le(10**8)]


class Positions(Settings):
    """Train at position ids of a longer context. One draw per step, shared by all its samples."""

    sampler: str
    """A position sampler of `lengthwise ls methods`."""
    target_length: Tokens
    """T in tokens: the positions that the windows are to cover, more than `length`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """The sampler's options."""

    @cached_property
    def _sampler(self) -> PositionSampler:
        return position_sampler(self.sampler, self.options)

    @model_validator(mode="after")
    def _check(self) -> Self:
        _ = self._sampler
        return self

    def draw(self, generator: np.random.Generator, length: int) -> Tensor:
        """Position ids [L]."""
        return self._sampler.draw(generator, length, self.target_length)
