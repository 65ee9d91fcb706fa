"""The public door to the objective: checks its input and hands it to the implementation."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lengthwise.alignment.checks import check_inputs, check_same_shape
from lengthwise.alignment.geometry import PairGeometry
from lengthwise.alignment.output import AlignmentOutput, Normalizers
from lengthwise.alignment.reference import alignment_loss_from_logits


def alignment_loss(
    hidden_long: Tensor,
    hidden_short: Tensor,
    head_weight: Tensor,
    labels_long: Tensor,
    labels_short: Tensor,
    *,
    geometry: PairGeometry,
    alpha: float,
    divergence: str = "sce",
    detach: str = "none",
    head_bias: Tensor | None = None,
    soft_cap: float | None = None,
    logit_scale: float = 1.0,
    normalizers: Normalizers | None = None,
    ignore_index: int = -100,
    chunk_size: int | None = None,
    accumulate_dtype: torch.dtype | None = None,
) -> AlignmentOutput:
    """The long-short alignment objective (Eq. 4)."""
    check_inputs(hidden_long, hidden_short, head_weight, head_bias, autocast=torch.is_autocast_enabled())
    check_same_shape(hidden_long, labels_long, labels_short, geometry)

    def head(hidden: Tensor) -> Tensor:
        logits = logit_scale * F.linear(hidden, head_weight, head_bias)
        return logits if soft_cap is None else soft_cap * torch.tanh(logits / soft_cap)

    return alignment_loss_from_logits(
        head(hidden_long),
        head(hidden_short),
        labels_long,
        labels_short,
        geometry=geometry,
        alpha=alpha,
        divergence=divergence,
        detach=detach,
        normalizers=normalizers,
        ignore_index=ignore_index,
    )


class AlignmentLoss(nn.Module):
    """`alignment_loss` with its settings bound."""

    def __init__(
        self,
        alpha: float,
        *,
        divergence: str = "sce",
        detach: str = "none",
        soft_cap: float | None = None,
        logit_scale: float = 1.0,
        ignore_index: int = -100,
        chunk_size: int | None = None,
        accumulate_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.alpha = alpha
        self.divergence = divergence
        self.detach = detach
        self.soft_cap = soft_cap
        self.logit_scale = logit_scale
        self.ignore_index = ignore_index
        self.chunk_size = chunk_size
        self.accumulate_dtype = accumulate_dtype

    def forward(
        self,
        hidden_long: Tensor,
        hidden_short: Tensor,
        head_weight: Tensor,
        labels_long: Tensor,
        labels_short: Tensor,
        *,
        geometry: PairGeometry,
        head_bias: Tensor | None = None,
        normalizers: Normalizers | None = None,
    ) -> AlignmentOutput:
        """As `alignment_loss`."""
        return alignment_loss(
            hidden_long,
            hidden_short,
            head_weight,
            labels_long,
            labels_short,
            geometry=geometry,
            alpha=self.alpha,
            divergence=self.divergence,
            detach=self.detach,
            head_bias=head_bias,
            soft_cap=self.soft_cap,
            logit_scale=self.logit_scale,
            normalizers=normalizers,
            ignore_index=self.ignore_index,
            chunk_size=self.chunk_size,
            accumulate_dtype=self.accumulate_dtype,
        )
