"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it.

The names below are loaded on first use, so that `import lengthwise` and `lengthwise --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.alignment import AlignmentLoss, PairGeometry, alignment_loss, next_token_labels
    from lengthwise.measure import (
        measure_limit,
        measure_longppl,
        measure_misalignment,
        measure_perplexity,
        measure_recall,
        paired_difference,
        perplexity_by_length,
    )
    from lengthwise.models import extend, find_head, load
    from lengthwise.text import load_corpus, tokenize
    from lengthwise.training import (
        AlignmentMixin,
        AlignmentTrainer,
        PairCollator,
        WindowDataset,
        model_alignment_loss,
        read_recipe,
        train,
    )

__version__ = "0.1.0"

_HOME = {
    "AlignmentLoss": "alignment",
    "PairGeometry": "alignment",
    "alignment_loss": "alignment",
    "next_token_labels": "alignment",
    "measure_limit": "measure",
    "measure_longppl": "measure",
    "measure_misalignment": "measure",
    "measure_perplexity": "measure",
    "measure_recall": "measure",
    "paired_difference": "measure",
    "perplexity_by_length": "measure",
    "extend": "models",
    "find_head": "models",
    "load": "models",
    "load_corpus": "text",
    "tokenize": "text",
    "AlignmentMixin": "training",
    "AlignmentTrainer": "training",
    "PairCollator": "training",
    "WindowDataset": "training",
    "model_alignment_loss": "training",
    "read_recipe": "training",
    "train": "training",
}

__all__ = [
    "AlignmentLoss",
    "AlignmentMixin",
    "AlignmentTrainer",
    "PairCollator",
    "PairGeometry",
    "WindowDataset",
    "alignment_loss",
    "extend",
    "find_head",
    "load",
    "load_corpus",
    "measure_limit",
    "measure_longppl",
    "measure_misalignment",
    "measure_perplexity",
    "measure_recall",
    "model_alignment_loss",
    "next_token_labels",
    "paired_difference",
    "perplexity_by_length",
    "read_recipe",
    "tokenize",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"lengthwise.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
