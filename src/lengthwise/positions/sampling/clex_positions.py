"""CLEX's training positions (Chen et al. 2023, "CLEX: Continuous Length Extrapolation for LLMs")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError, require
from lengthwise.positions.sampling.sampler import check_lengths


@dataclass(frozen=True, kw_only=True)
class ClexPositions:
    """Random positions of a random extent, its first and last pinned.

    t ~ U{1 .. floor(T / L0)}. Then 0, a sorted random subset of 1 .. tL-2 of L-2 elements, and tL-1; where the window
    is longer than the original context, all are divided by L / L0 (float32). So they reach to t L0, and a model
    extended by `clex` takes just this t from them, for both views.
    """

    original_length: int | None = None
    """L0: context in tokens that the model was trained for; None is the window's length."""

    def __post_init__(self) -> None:
        require(
            self.original_length is None or self.original_length >= 1,
            f"original_length = {self.original_length}",
            "1 or more tokens",
        )

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """See `PositionSampler`; L has to be a multiple of L0."""
        check_lengths(length, target_length)
        original = self.original_length or length
        share, rest = divmod(length, original)
        # The released code rounds L / L0 down, which reaches beyond the target where it is no whole number.
        if rest:
            raise UsageError(
                f"a window of {length} tokens is no multiple of the original context of {original}",
                expected=f"original_length = {length}, or a divisor of it",
            )
        extent = int(generator.integers(1, target_length // original + 1)) * length
        inner = 1 + np.sort(generator.choice(extent - 2, size=length - 2, replace=False))
        positions = torch.from_numpy(np.concatenate([[0], inner, [extent - 1]]))
        return positions if share == 1 else positions / share
