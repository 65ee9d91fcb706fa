"""The idea of long-short alignment: the misalignment, its parts, and the objective. Torch loads on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.alignment.divergences import DIVERGENCES, Detach, Objective, SharpeningWarning
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
    from lengthwise.alignment.objective import alignment_loss, alignment_loss_from_logits

__all__ = [
    "DIVERGENCES",
    "AlignmentOutput",
    "Detach",
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


def __getattr__(name: str) -> Any:
    if name in __all__:
        # The first of them imports no torch.
        for home in ("divergences", "formulas", "geometry", "loss_output", "objective"):
            module = importlib.import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
