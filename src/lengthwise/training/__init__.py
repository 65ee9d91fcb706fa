"""Training with the alignment objective: recipes, windows, the Trainer, runs. Torch loads on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.training.collator import PairCollator, WindowDataset
    from lengthwise.training.measure_callback import MeasureCallback
    from lengthwise.training.model_loss import model_alignment_loss
    from lengthwise.training.recipe import Recipe, read_recipe, shipped_recipes
    from lengthwise.training.trainer import AlignmentArguments, AlignmentConfig, AlignmentTrainer
    from lengthwise.training.training_plan import plan
    from lengthwise.training.training_run import train
    from lengthwise.training.views import Positions, View

__all__ = [
    "AlignmentArguments",
    "AlignmentConfig",
    "AlignmentTrainer",
    "MeasureCallback",
    "PairCollator",
    "Positions",
    "Recipe",
    "View",
    "WindowDataset",
    "model_alignment_loss",
    "plan",
    "read_recipe",
    "shipped_recipes",
    "train",
]
# The first of them import no torch, and only the last transformers' Trainer.
_HOMES = ("recipe", "training_plan", "model_loss", "collator", "trainer", "measure_callback", "training_run")


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
