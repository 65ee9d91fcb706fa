"""One or several skips in the positions of a contiguous text, at random places and of random sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.positions.sampling.sampler import check_lengths


@dataclass(frozen=True, kw_only=True)
class Skip:
    """L tokens in order, with `skips` jumps of their positions, all within 0 .. T - 1.

    Their places are drawn without replacement from 1 .. L - 1; a total of u = 1 .. min(max_gap, T - L) positions is
    left out and split among them at random. `uniform` draws u itself, `log` its logarithm, so that each factor of
    two is as likely as the next. With probability 1 - `share` nothing is left out. With probability `shifted` the
    text begins at a random position of those that are still free, else at 0. PoSE within the trained length is this
    with one skip; RoPE-perturbed self-distillation (arXiv 2604.14339) has one skip of at most L (`max_gap`).
    """

    max_gap: int | None = None
    """The most positions left out in all, in tokens; null is T - L."""
    spread: Literal["uniform", "log"] = "uniform"
    """How the number of positions left out is drawn."""
    skips: int = 1
    """Jumps in a window."""
    share: float = 1.0
    """Share of the draws that skip; the others are contiguous."""
    shifted: float = 0.0
    """Share of the draws whose text begins at a random position."""

    def __post_init__(self) -> None:
        if self.max_gap is not None and self.max_gap < 1:
            raise UsageError(f"max_gap = {self.max_gap}", expected="1 or more tokens, or null")
        if self.skips < 1:
            raise UsageError(f"skips = {self.skips}", expected="1 or more")
        for name, share in (("share", self.share), ("shifted", self.shifted)):
            if not 0 <= share <= 1:
                raise UsageError(f"{name} = {share:g}", expected="a share, 0 to 1")

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """See `PositionSampler`."""
        check_lengths(length, target_length)
        free = target_length - length
        if free == 0:
            return torch.arange(length)
        most = free if self.max_gap is None else min(self.max_gap, free)
        if most < self.skips or self.skips >= length:
            raise UsageError(
                f"{self.skips} skips in {length} tokens at {target_length} positions",
                expected="fewer skips than tokens, and a position to leave out for each",
            )
        positions = torch.arange(length)
        total = 0
        # One draw less at a share of 1, which so has the numbers that it had before there was a share.
        if self.share == 1 or generator.random() < self.share:
            total = self._total(generator, most)
            places = np.sort(generator.choice(length - 1, size=self.skips, replace=False)) + 1
            # Every jump leaves out one position at least.
            inner = np.sort(generator.choice(total - 1, size=self.skips - 1, replace=False)) + 1
            sizes = np.diff([0, *inner, total])
            for place, size in zip(places, sizes, strict=True):
                positions[place:] += int(size)
        if generator.random() < self.shifted:
            positions += int(generator.integers(0, free - total + 1))
        return positions

    def _total(self, generator: np.random.Generator, most: int) -> int:
        """Positions left out in all, `skips` .. `most`."""
        if self.spread == "uniform":
            return int(generator.integers(self.skips, most + 1))
        # The share of [u, u + 1) on a logarithmic scale from `skips` to `most` + 1.
        return int(self.skips * ((most + 1) / self.skips) ** generator.random())
