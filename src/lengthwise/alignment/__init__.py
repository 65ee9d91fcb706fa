"""The idea of long-short alignment: the misalignment, its parts, and the objective. Torch loads on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.alignment.divergences import (
        DIVERGENCES,
        Detach,
        DivergenceName,
        Objective,
        SharpeningWarning,
    )
    from lengthwise.alignment.formulas import (
        cross_entropy,
        divergence_from_logits,
        entropy,
        jeffreys,
        jensen_shannon,
        kl_divergence,
        symmetric_cross_entropy,
    )
    from lengthwise.alignment.geometry import PairGeometry, next_token_labels
    from lengthwise.alignment.loss_output import AlignmentOutput, Normalizers
    from lengthwise.alignment.objective import AlignmentLoss, alignment_loss, alignment_loss_from_logits

__all__ = [
    "DIVERGENCES",
    "AlignmentLoss",
    "AlignmentOutput",
    "Detach",
    "DivergenceName",
    "Normalizers",
    "Objective",
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

_NAMES = {
    "divergences": ("DIVERGENCES", "Detach", "DivergenceName", "Objective", "SharpeningWarning"),
    "formulas": (
        "cross_entropy",
        "divergence_from_logits",
        "entropy",
        "jeffreys",
        "jensen_shannon",
        "kl_divergence",
        "symmetric_cross_entropy",
    ),
    "geometry": ("PairGeometry", "next_token_labels"),
    "loss_output": ("AlignmentOutput", "Normalizers"),
    "objective": ("AlignmentLoss", "alignment_loss", "alignment_loss_from_logits"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
