"""PoSE (Zhu et al. 2023, "PoSE: Efficient Context Window Extension ... via Positional Skip-wise Training")."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthwise.positions.sampling.sampler import check_lengths


@dataclass(frozen=True, kw_only=True)
class Pose:
    """Two chunks: the first at 0 .. r-1, the second after a gap of u.

    r ~ U{1 .. floor((L+1)/2)}, u ~ U{0 .. T-L}, as in the later released code, where the first chunk begins at 0. The
    released code can also take the two chunks from different places in the text; here the text is contiguous.
    """

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """See `PositionSampler`."""
        check_lengths(length, target_length)
        first = int(generator.integers(1, (length + 1) // 2 + 1))
        gap = int(generator.integers(0, target_length - length + 1))
        positions = torch.arange(length)
        positions[first:] += gap
        return positions
