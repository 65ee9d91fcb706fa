"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it.

The names below are loaded on first use, so that `import lengthwise` and `lengthwise --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.alignment import (
        AlignmentOutput,
        Objective,
        PairGeometry,
        alignment_loss,
        next_token_labels,
    )
    from lengthwise.errors import Interrupted, LengthwiseError, MissingError, UsageError
    from lengthwise.evaluation import Evaluation
    from lengthwise.measure import (
        Influence,
        Limit,
        LongPpl,
        Measurement,
        Misalignment,
        Perplexity,
        Recall,
        compare_runs,
        paired_difference,
        run,
    )
    from lengthwise.models import LoadedModel, extend, find_head, load
    from lengthwise.results import Results, Row, read_results
    from lengthwise.settings import Subject
    from lengthwise.text import load_corpus, tokenize
    from lengthwise.training import (
        AlignmentConfig,
        AlignmentMixin,
        AlignmentTrainer,
        MeasureCallback,
        PairCollator,
        View,
        WindowDataset,
        model_alignment_loss,
        read_recipe,
        train,
    )

__version__ = "0.2.0"

_HOMES: dict[str, tuple[str, ...]] = {
    "alignment": (
        "AlignmentOutput",
        "Objective",
        "PairGeometry",
        "alignment_loss",
        "next_token_labels",
    ),
    "errors": ("Interrupted", "LengthwiseError", "MissingError", "UsageError"),
    "measure": (
        "Influence",
        "Limit",
        "LongPpl",
        "Measurement",
        "Misalignment",
        "Perplexity",
        "Recall",
        "compare_runs",
        "paired_difference",
        "run",
    ),
    "evaluation": ("Evaluation",),
    "models": ("LoadedModel", "extend", "find_head", "load"),
    "results": ("Results", "Row", "read_results"),
    "settings": ("Subject",),
    "text": ("load_corpus", "tokenize"),
    "training": (
        "AlignmentConfig",
        "AlignmentMixin",
        "AlignmentTrainer",
        "MeasureCallback",
        "PairCollator",
        "View",
        "WindowDataset",
        "model_alignment_loss",
        "read_recipe",
        "train",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AlignmentConfig",
    "AlignmentMixin",
    "AlignmentOutput",
    "AlignmentTrainer",
    "Evaluation",
    "Influence",
    "Interrupted",
    "LengthwiseError",
    "Limit",
    "LoadedModel",
    "LongPpl",
    "MeasureCallback",
    "Measurement",
    "Misalignment",
    "MissingError",
    "Objective",
    "PairCollator",
    "PairGeometry",
    "Perplexity",
    "Recall",
    "Results",
    "Row",
    "Subject",
    "UsageError",
    "View",
    "WindowDataset",
    "alignment_loss",
    "compare_runs",
    "extend",
    "find_head",
    "load",
    "load_corpus",
    "model_alignment_loss",
    "next_token_labels",
    "paired_difference",
    "read_recipe",
    "read_results",
    "run",
    "tokenize",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"lengthwise.{_HOME[name]}"), name)
    raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
