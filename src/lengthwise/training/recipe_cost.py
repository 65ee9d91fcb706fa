"""What a recipe takes on a model's configuration: the model without weights, and the operations of its products."""

from __future__ import annotations

import copy
from typing import Any

import torch

from lengthwise.models.extension import plan_extension, write_extension
from lengthwise.models.plan import model_skeleton
from lengthwise.training.memory import passes
from lengthwise.training.recipe import Recipe
from lengthwise.training.trained_model import add_adapter, check_positions


def recipe_skeleton(recipe: Recipe, config: Any) -> Any:
    """The model of `config` with the recipe's extension and adapter, on the meta device.

    Raises:
        UsageError: the model cannot be extended so, or the recipe's positions do not fit it.
    """
    config = copy.deepcopy(config)
    if (section := recipe.extend) is not None:
        extension = plan_extension(
            config,
            section.method,
            factor=section.factor,
            original_length=section.original_length,
            options=section.options,
            name=recipe.model,
        )
        write_extension(config, extension)
    model = model_skeleton(config)
    check_positions(recipe, model)
    with torch.device("meta"):
        return add_adapter(model, recipe.adapter or recipe.peft)


def training_operations(recipe: Recipe, factors: int, trained: int) -> int:
    """Floating-point operations for each token of one view: `(T (2 + R) + 2 V) factors + 2 T trained`.

    V views are read and T of them trained (`passes`); R is 2 where the forward pass is recomputed. A product takes 2
    operations forward, 2 for the gradient of its input, and 2 for that of its other factor where it is trained.

    Args:
        recipe: a checked recipe.
        factors: products of one token: weights, or `attention_factors`.
        trained: those of them whose other factor gets a gradient.
    """
    read, graded = passes(recipe.objective)
    recomputed = 2 if recipe.gradient_checkpointing else 0
    return graded * ((2 + recomputed) * factors + 2 * trained) + read * 2 * factors


def run_operations(recipe: Recipe, model: Any) -> int:
    """Floating-point operations of all steps, over all devices, for products with weights of a `recipe_skeleton`."""
    weights = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    tokens = recipe.steps * recipe.batch.size * recipe.length
    return tokens * training_operations(recipe, weights, trained)


def attention_factors(model: Any, context: int) -> int:
    """Products of one token's causal attention, on average over a row of `context` tokens: layers * width * context.

    Queries meet half of the keys, and as many values.
    """
    config = model.config.get_text_config()
    return config.num_hidden_layers * config.hidden_size * context
