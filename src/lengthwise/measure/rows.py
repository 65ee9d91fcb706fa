"""Old names, kept until evaluation no longer imports them."""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.models.losses import NonFiniteLogits as NonFiniteRow
from lengthwise.models.losses import chunks, require_finite

__all__ = ["NonFiniteRow", "chunks", "target_losses"]


def target_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """-log p(label): logits [N, V], labels [N] -> [N], nats."""
    losses = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    require_finite(losses)
    return losses
