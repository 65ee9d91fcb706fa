"""The divisors of the objective's sums: the counts of one call, or of a step over micro-batches and ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from lengthwise.alignment.divergences import NO_LABEL
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.errors import require, shown


@dataclass(frozen=True)
class Normalizers:
    """Divisors of the three sums: label tokens for the CE of each side, paired positions for the rest.

    By default a call divides by its own counts. Give the counts of the whole optimizer step instead, summed
    over micro-batches and ranks, and the losses and gradients of the parts add up to those of the whole,
    however it was cut:

        step = sum of Normalizers.count(...) over the micro-batches, then step.over_ranks(device)
        for each micro-batch: alignment_loss(..., normalizers=step).loss.backward()

    (A wrapper that averages gradients over ranks, such as DDP and FSDP2, divides once more: multiply the loss
    by their number.)

    Each is a number or a tensor of one element. 0 is right only where there is nothing to divide.
    """

    labels_long: float | Tensor
    labels_short: float | Tensor
    paired_positions: float | Tensor

    @classmethod
    def count(cls, labels_long: Tensor, labels_short: Tensor, *, geometry: PairGeometry) -> Normalizers:
        """The counts of one batch, labels [B, L] each: what a call divides by when none are given."""
        return cls(
            labels_long=int((labels_long.long() != NO_LABEL).sum()),
            labels_short=int((labels_short.long() != NO_LABEL).sum()),
            paired_positions=labels_long.shape[0] * geometry.paired_positions,
        )

    def __add__(self, other: Normalizers) -> Normalizers:
        """The counts of both parts together."""
        return Normalizers(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    def over_ranks(self, device: torch.device | str) -> Normalizers:
        """The counts of all processes of `torch.distributed` together; of one alone, its own.

        `device` is where the backend reduces: the rank's GPU for NCCL, "cpu" for gloo.
        """
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            return self
        total = torch.tensor([int(count) for count in vars(self).values()], device=device)
        torch.distributed.all_reduce(total)
        return Normalizers(*map(float, total.tolist()))

    def divisors(self, counts: Normalizers) -> tuple[float, float, float]:
        """The three as plain numbers for a call with these counts; 1 where there is nothing to divide.

        UsageError if one is not finite, is negative, or is 0 where the call has something to divide.
        """
        divisors = []
        for name, count in vars(counts).items():
            given = getattr(self, name)
            one = isinstance(given, Tensor) and given.numel() == 1
            require(one or isinstance(given, Real), f"normalizers.{name} is {shown(given)}", "a number")
            value = float(given)
            require(
                math.isfinite(value) and value >= 0 and (value > 0 or count == 0),
                f"normalizers.{name} is {value:g} and this call has {count} to divide",
                "the count over the whole step, so a positive number",
            )
            divisors.append(value or 1.0)
        long, short, paired = divisors
        return long, short, paired
