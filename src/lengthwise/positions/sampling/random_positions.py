"""Randomised positions (Ruoss et al. 2023, "Randomized Positional Encodings Boost Length Generalization")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthwise.positions.sampling.sampler import check_lengths


@dataclass(frozen=True, kw_only=True)
class RandomPositions:
    """A sorted subset of 0 .. T-1 of L elements, every subset equally likely.

    The original method also draws at test time. Language models are evaluated at consecutive positions, where
    it is a weak baseline for context extension.
    """

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """See `PositionSampler`."""
        check_lengths(length, target_length)
        return torch.from_numpy(np.sort(generator.choice(target_length, size=length, replace=False)))
