"""Training with the alignment objective: recipes, windows, the Trainer, runs. Torch comes when it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.training.collator import PairCollator, WindowDataset
    from lengthwise.training.objective import model_alignment_loss
    from lengthwise.training.planning import plan
    from lengthwise.training.recipe import Recipe
    from lengthwise.training.recipe_checks import check_recipe
    from lengthwise.training.recipe_reading import make_recipe, read_recipe, shipped_recipes
    from lengthwise.training.run import open_run, train, train_or_resume
    from lengthwise.training.trainer import AlignmentMixin, AlignmentTrainer

_HOMES = {
    "AlignmentMixin": "trainer",
    "AlignmentTrainer": "trainer",
    "PairCollator": "collator",
    "Recipe": "recipe",
    "WindowDataset": "collator",
    "check_recipe": "recipe_checks",
    "make_recipe": "recipe_reading",
    "model_alignment_loss": "objective",
    "open_run": "run",
    "plan": "planning",
    "read_recipe": "recipe_reading",
    "shipped_recipes": "recipe_reading",
    "train": "run",
    "train_or_resume": "run",
}

__all__ = [
    "AlignmentMixin",
    "AlignmentTrainer",
    "PairCollator",
    "Recipe",
    "WindowDataset",
    "check_recipe",
    "make_recipe",
    "model_alignment_loss",
    "open_run",
    "plan",
    "read_recipe",
    "shipped_recipes",
    "train",
    "train_or_resume",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
