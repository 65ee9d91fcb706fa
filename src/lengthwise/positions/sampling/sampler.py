"""The interface of a position sampler, and the checks that all of them share."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import UsageError


class PositionSampler(Protocol):
    """A sampler of position ids: a frozen dataclass whose fields are its options.

    Notation: L = length of the training window, T = target_length, the number of positions to be learned.
    Positions ascend strictly, so a window keeps its order. Pass an all-ones attention mask with them: without
    one, transformers takes every step other than +1 for a boundary between packed documents.
    """

    def draw(self, generator: np.random.Generator, length: int, target_length: int) -> Tensor:
        """One draw: position ids [L] within 0 .. T - 1, int64 (float32 where positions are divided).

        Args:
            generator: the only source of randomness.
            length: L, tokens.
            target_length: T, tokens.

        Raises:
            UsageError: the sampler has no positions for these lengths.
        """
        ...


def check_lengths(length: int, target_length: int) -> None:
    """Raise UsageError unless 2 <= L <= T."""
    if length < 2:
        raise UsageError(f"length = {length}", expected="2 or more tokens")
    if target_length < length:
        raise UsageError(
            f"target_length = {target_length} is shorter than the window of {length} tokens",
            expected=f"{length} or more tokens",
        )


def first_gap(positions: Tensor) -> int:
    """The first row whose position does not follow on from the rows before it; L if all do.

    Rows before it are predicted from the same tokens at the same distances as in a contiguous window.
    """
    contiguous = positions[0] + torch.arange(len(positions), device=positions.device)
    moved = (positions != contiguous).nonzero()
    return int(moved[0]) if len(moved) else len(positions)


def largest_gap(positions: Tensor) -> int:
    """The row behind the largest step of more than 1, the first of several; L if all rows follow on."""
    steps = positions.diff()
    largest = int(steps.argmax())
    return largest + 1 if steps[largest] > 1 else len(positions)
