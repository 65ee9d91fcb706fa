"""The idea of long-short alignment: the misalignment, its parts, and the objective. Needs torch alone."""

from __future__ import annotations

from lengthwise.alignment.checks import SharpeningWarning
from lengthwise.alignment.geometry import PairGeometry, next_token_labels
from lengthwise.alignment.objective import AlignmentLoss, alignment_loss
from lengthwise.alignment.output import AlignmentOutput, Normalizers
from lengthwise.alignment.reference import (
    alignment_loss_from_logits,
    cross_entropy,
    divergence_from_logits,
    entropy,
    jeffreys,
    jensen_shannon,
    kl_divergence,
    symmetric_cross_entropy,
)

__all__ = [
    "AlignmentLoss",
    "AlignmentOutput",
    "Normalizers",
    "PairGeometry",
    "SharpeningWarning",
    "alignment_loss",
    "alignment_loss_from_logits",
    "cross_entropy",
    "divergence_from_logits",
    "entropy",
    "jeffreys",
    "jensen_shannon",
    "kl_divergence",
    "next_token_labels",
    "symmetric_cross_entropy",
]
