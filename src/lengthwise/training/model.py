"""The model of a run: loaded, given its adapter, saved."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from torch import nn

from lengthwise.errors import UsageError
from lengthwise.models import LoadedModel, load
from lengthwise.models.quiet import quiet_transformers
from lengthwise.training.recipe import Adapter, Recipe


def load_for_training(recipe: Recipe) -> LoadedModel:
    """The recipe's model, in the dtype that its `precision` calls for, on the CPU (the Trainer moves it).

    Raises:
        UsageError: the model has no position embedding for the last tokens of a view.
    """
    frozen_base = recipe.adapter is not None and recipe.precision == "bfloat16"
    loaded = load(recipe.model, dtype="bfloat16" if frozen_base else "float32", device="cpu")
    if loaded.max_positions is not None and recipe.length > loaded.max_positions:
        raise UsageError(
            f"length = {recipe.length}, and {recipe.model} has learned embeddings for "
            f"{loaded.max_positions} positions",
            expected=f"length of at most {loaded.max_positions}",
        )
    return loaded


def add_adapter(model: Any, adapter: Adapter | None) -> Any:
    """The model with fresh LoRA layers and all else frozen; with None, the model itself, all trainable.

    Raises:
        UsageError: the model has no layers of the names in `target_modules`.
    """
    if adapter is None:
        return model.requires_grad_(True)
    from peft import LoraConfig, get_peft_model

    modules = adapter.target_modules
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.r,
        lora_alpha=adapter.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=adapter.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
    )
    try:
        with quiet_transformers():
            return get_peft_model(model, config)
    except ValueError as error:
        linear = sorted({n.rpartition(".")[2] for n, m in model.named_modules() if isinstance(m, nn.Linear)})
        raise UsageError(
            f"adapter.target_modules = {modules!r} does not fit the model: {error}",
            expected="all-linear, or names among: " + ", ".join(linear),
        ) from error


def save_whole(model: Any, tokenizer: Any, path: Path) -> None:
    """Save model (or adapter) and tokenizer so that `path` holds all of it or does not exist."""
    unfinished = path.with_name(f".{path.name}.part")
    for left_over in (unfinished, path):
        if left_over.exists():
            shutil.rmtree(left_over)
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    os.replace(unfinished, path)
