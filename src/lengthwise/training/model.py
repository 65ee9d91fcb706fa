"""The model of a run: loaded, extended, given its adapter."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from lengthwise.errors import UsageError
from lengthwise.models import LoadedModel, extend, load
from lengthwise.models.extension import clex_modules
from lengthwise.models.hidden import unwrap
from lengthwise.models.positions import max_positions
from lengthwise.models.quiet import quiet_transformers
from lengthwise.training.recipe import Adapter, Recipe


def load_for_training(recipe: Recipe) -> LoadedModel:
    """The recipe's model, extended as its `extend` says.

    In the dtype that its `precision` calls for, on the CPU (the Trainer moves it).

    Raises:
        UsageError: the model has no position embedding for the last tokens of a view, or cannot be extended so.
    """
    frozen_base = recipe.adapter is not None and recipe.precision == "bfloat16"
    loaded = load(recipe.model, dtype="bfloat16" if frozen_base else "float32", device="cpu")
    if loaded.max_positions is not None and recipe.length > loaded.max_positions:
        raise UsageError(
            f"length = {recipe.length}, and {recipe.model} has learned embeddings for "
            f"{loaded.max_positions} positions",
            expected=f"length of at most {loaded.max_positions}",
        )
    if (section := recipe.extend) is not None:
        extend(
            loaded.model,
            section.method,
            factor=section.factor,
            original_length=section.original_length,
            name=recipe.model,
            **section.options,
        )
    check_positions(recipe, loaded.model)
    return loaded


def check_positions(recipe: Recipe, model: nn.Module) -> None:
    """Refuse sampled positions for a model that they cannot reach, or that would remember them.

    Args:
        recipe: a checked recipe.
        model: its model, extended; weights are not looked at.

    Raises:
        UsageError: positions are sampled and the model takes none, has none so far, or has frequencies
            that depend on those of earlier steps.
    """
    if recipe.positions is None:
        return
    base = unwrap(model)
    target, sampler = recipe.positions.target_length, recipe.positions.sampler
    if "position_ids" not in inspect.signature(base.forward).parameters:
        raise UsageError(
            f"positions.sampler = {sampler}, and {recipe.model} takes no position ids",
            expected="a model with rotary or learned positions",
        )
    limit = max_positions(base)
    if limit is not None and target > limit:
        raise UsageError(
            f"positions.target_length = {target}, and {recipe.model} has learned embeddings for {limit} positions",
            expected=f"target_length of at most {limit}",
        )
    rope: Any = getattr(base.config.get_text_config(), "rope_parameters", None) or {}
    if rope.get("rope_type") == "dynamic":
        raise UsageError(
            f"positions.sampler = {sampler} with dynamic rope: its frequencies stay at the longest position seen, so "
            "a step would depend on the draws of those before it",
            expected="ntk, yarn or another extension whose frequencies do not change",
        )


def add_adapter(model: Any, adapter: Adapter | None) -> Any:
    """The model with fresh LoRA layers and all else frozen; with None, the model itself, all trainable.

    Raises:
        UsageError: the model has no layers of the names in `target_modules`.
    """
    if adapter is None:
        return model.requires_grad_(True)
    from peft import LoraConfig, get_peft_model

    modules = adapter.target_modules
    # The learned part of an extension is trained whole and saved with the adapter.
    learned = sorted({name.rpartition(".")[2] for name, _ in clex_modules(model)})
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=adapter.r,
        lora_alpha=adapter.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=adapter.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        modules_to_save=learned or None,
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
