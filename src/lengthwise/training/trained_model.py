"""The model of a run: loaded, extended, given its adapter."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from lengthwise.errors import UsageError
from lengthwise.models import LoadedModel, extend, load
from lengthwise.models.attention import use_attention
from lengthwise.models.extension import clex_modules
from lengthwise.models.hidden import unwrap
from lengthwise.models.loading import DTYPES
from lengthwise.models.positions import max_positions
from lengthwise.models.quantization import nf4_config
from lengthwise.models.quiet import quiet_transformers
from lengthwise.training.adapters import add_saved, linear_names, lora_config, peft_config
from lengthwise.training.recipe import Adapter, Peft, Recipe


def load_for_training(recipe: Recipe) -> LoadedModel:
    """The recipe's model, extended as its `extend` says, with the attention of its `attention`.

    In the dtype that its `precision` calls for, on the CPU (the Trainer moves it); 4-bit weights where they will
    stay.

    Raises:
        UsageError: the model has no position embedding for the last tokens of a view, or cannot be extended so.
        MissingError: the model, or the package for 4-bit weights, is not there.
    """
    frozen_base = (recipe.adapter or recipe.peft) is not None and recipe.precision == "bfloat16"
    dtype = "bfloat16" if frozen_base else "float32"
    if (quantize := recipe.quantize) is None:
        loaded = load(recipe.model, dtype=dtype, device="cpu")
    else:
        config = nf4_config(double=quantize.double, compute_dtype=DTYPES[dtype])
        loaded = load(recipe.model, dtype=dtype, device=recipe.device, quantization=config)
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
    if (attention := recipe.attention) is not None:
        use_attention(loaded.model, attention.method, group=attention.group)
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


def add_adapter(model: Any, adapter: Adapter | Peft | None) -> Any:
    """The model with fresh adapters and all else frozen; with None, the model itself, all trainable.

    What is trained is float32, whatever the frozen weights are. The learned part of an extension is trained whole
    and saved with the adapter.

    Raises:
        UsageError: the method does not fit the model, or the model has no layers of the names that it is given.
    """
    if adapter is None:
        return model.requires_grad_(True)
    from peft import get_peft_model

    config = lora_config(model, adapter) if isinstance(adapter, Adapter) else peft_config(adapter)
    add_saved(config, {name.rpartition(".")[2] for name, _ in clex_modules(model)})
    try:
        with quiet_transformers():
            adapted = get_peft_model(model, config)
    except ValueError as error:
        what = (
            f"adapter.target_modules = {adapter.target_modules!r}"
            if isinstance(adapter, Adapter)
            else f"peft.config = {adapter.config}"
        )
        raise UsageError(
            f"{what} does not fit the model: {error}",
            expected="all-linear, or names among: " + ", ".join(linear_names(model)),
        ) from error
    for parameter in adapted.parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()
    return adapted
