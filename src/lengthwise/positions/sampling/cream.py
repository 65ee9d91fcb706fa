"""CREAM (Wu et al. 2024, "An Efficient Recipe for Long Context Extension via Middle-Focused Positional Encoding")."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError, require
from lengthwise.positions.sampling.sampler import check_lengths


@dataclass(frozen=True, kw_only=True)
class Cream:
    """A head at the first positions, a tail at the last, and a middle chunk whose place favours the middle.

    With f = T/L: head and tail have floor(L/3) tokens, or 4f, each with probability 1/2; the middle has the other
    m = L - 2h. The middle's last position is even over {floor(h + (m-1) r/2) .. floor(rL/2) - h - 1}, where r in
    {2 .. 2f} has the probabilities of `ratio_probabilities`.

    The coin for h is tossed at every draw (the released code: once for 3000 examples), and the text is
    contiguous (the released code takes the tokens at these positions where a document has them).
    """

    sigma: float = 3.0
    """Standard deviation of r before it is cut to 2 .. 2f."""
    legacy: bool = False
    """Draw r as the released code does, whose cut-off tails pile up at both ends."""

    def __post_init__(self) -> None:
        require(math.isfinite(self.sigma) and self.sigma > 0, f"sigma = {self.sigma}", "a positive number")

    def ratio_probabilities(self, factor: int) -> np.ndarray:
        """P(r) for r = 2 .. 2f, float64 [2f - 1].

        A Gaussian about 1 + f on these whole numbers, normalised over them. `legacy`: the released code inverts the
        Gaussian's distribution function on 2 .. 2f without normalising it and rounds down, so that r = 2 also gets
        all that lies below and r = 2f all that lies above; for f = 2 the middle is then the least likely.
        """
        ratios = np.arange(2, 2 * factor + 1)
        if self.legacy and factor > 1:
            edges = [NormalDist(1 + factor, self.sigma).cdf(float(ratio)) for ratio in ratios]
            edges[0] = 0.0
            return np.diff([*edges, 1.0])
        weights = np.exp(-(((ratios - 1 - factor) / self.sigma) ** 2) / 2)
        return weights / weights.sum()

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """See `PositionSampler`; T has to be a multiple of L, and L above 8 T/L."""
        check_lengths(length, target_length)
        factor, rest = divmod(target_length, length)
        if rest:
            raise UsageError(
                f"target_length = {target_length} is no multiple of the window of {length} tokens",
                expected=f"{factor * length} or {(factor + 1) * length} for CREAM",
            )
        if 8 * factor >= length or length < 3:
            raise UsageError(
                f"a window of {length} tokens has no middle at {factor} times its length",
                expected=f"more than {8 * factor} tokens: CREAM's head and tail have 4 * {factor} each",
            )
        edge = int(generator.choice([length // 3, 4 * factor]))
        middle = length - 2 * edge
        probabilities = self.ratio_probabilities(factor)
        ratio = int(generator.choice(np.arange(2, 2 * factor + 1), p=probabilities))
        lowest = math.floor(edge + (middle - 1) * ratio / 2)
        highest = math.floor(ratio * length / 2) - edge - 1
        last = int(generator.integers(lowest, highest + 1))
        return torch.cat(
            [
                torch.arange(edge),
                torch.arange(last - middle + 1, last + 1),
                torch.arange(target_length - edge, target_length),
            ]
        )
