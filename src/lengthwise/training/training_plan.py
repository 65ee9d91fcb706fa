"""What a recipe would do, before any weight is loaded: `lengthwise train --dry-run`."""

from __future__ import annotations

from typing import Any

import torch

from lengthwise.errors import MissingError
from lengthwise.models.plan import Cost, seconds_at_least, unknown_cost
from lengthwise.models.resolve import read_config, read_tokenizer, resolve
from lengthwise.processes import process_count
from lengthwise.text import WindowSampler
from lengthwise.text.corpus_sources import HUB_PREFIX
from lengthwise.training.cost import BASIS, MARGIN, device_memory, parameter_counts, run_operations, ways
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import recipe_skeleton, training_documents


def plan(recipe: Recipe, *, devices: int | None = None, memory: int | None = None) -> dict[str, Any]:
    """What `recipe` would do and take: plain values, as `lengthwise train --dry-run --json` prints them.

    Needs the configuration of the model alone. The text is checked where it and the tokenizer are at hand.

    Args:
        recipe: what would be run.
        devices: how many would run it; None is torchrun's number.
        memory: bytes of one device, to name the way of sharding that fits.

    Returns:
        `settings`, `min_context` and `offsets` with their defaults filled in; `micro_batch` samples at a time on one
        of `processes` devices, and `accumulation` of them a step; the tokens that are read (`tokens_per_step`,
        `tokens_to_run`); the `Cost`, unknown until the model has been made. Only where there is something to tell:
        `text_not_checked`, `notes`, `memory_by_sharding` (bytes on each of several devices), `host_memory_bytes`
        (for each, with offload), `fits` (the fastest way of `memory_by_sharding` that fits `memory`).

    Raises:
        UsageError, MissingError: the recipe cannot work, or there is no such model.
    """
    count = process_count() if devices is None else devices
    tokens = recipe.batch.size * sum(recipe.objective.reads) * recipe.length
    micro, accumulation = recipe.batch.cut(count)
    found = {
        "settings": recipe.to_dict(),
        "tokens_to_run": recipe.steps * tokens,
        "min_context": recipe.min_context,
        "offsets": recipe.offsets,
        "processes": count,
        "micro_batch": micro,
        "accumulation": accumulation,
        "tokens_per_step": tokens,
        "text_not_checked": "the tokenizer is not known before the model has been made",
        "notes": recipe.notes or None,
    }
    cost = unknown_cost(recipe.model)
    if cost is None:
        found["text_not_checked"] = _check_text(recipe)
        cost, more = _cost(recipe, micro, count, memory)
        found |= more
    return {name: value for name, value in found.items() if value is not None} | cost.to_dict()


def _check_text(recipe: Recipe) -> str | None:
    """Why the text was not checked, if so: a data set on the hub or the tokenizer is not at hand.

    Raises:
        UsageError: the text holds no stretch of a step.
    """
    try:
        tokenizer = read_tokenizer(resolve(recipe.model))
    except MissingError as error:
        return error.problem
    try:
        documents, _ = training_documents(recipe, tokenizer)
    except MissingError as error:
        if not recipe.data.corpus.startswith(HUB_PREFIX):
            raise
        return error.problem
    WindowSampler(documents).window(0, recipe.length + recipe.offsets[1])
    return None


def _cost(recipe: Recipe, micro: int, devices: int, card: int | None) -> tuple[Cost, dict[str, Any]]:
    """The cost, and the ways to spread the run over devices."""
    model = recipe_skeleton(recipe, read_config(resolve(recipe.model)))
    device = torch.device("cpu")
    if recipe.device == "auto" and torch.accelerator.is_available():
        device = torch.accelerator.current_accelerator() or device
    size = {"micro": micro, "devices": devices, "device": device}
    memory = device_memory(recipe, model, **size)
    spread = {name: device_memory(way, model, **size)["device"] for name, way in ways(recipe, devices)}
    work = run_operations(recipe, model) // devices
    seconds, basis = seconds_at_least(work, device=str(device), dtype=recipe.precision)
    parameters, trained = parameter_counts(model)
    cost = Cost(
        parameters=parameters,
        trainable_parameters=trained,
        memory_bytes=memory["device"],
        memory_basis=BASIS,
        seconds_at_least=seconds,
        seconds_basis=basis,
    )
    return cost, {
        "memory_by_sharding": spread if devices > 1 else None,
        "host_memory_bytes": memory["host"] or None,
        "fits": None if card is None else _fitting(spread, card),
    }


def _fitting(spread: dict[str, int], card: int) -> str:
    """The first way that fills at most `MARGIN` of the card."""
    for name, need in spread.items():
        if need <= MARGIN * card:
            return name
    name, least = min(spread.items(), key=lambda way: way[1])
    return (
        f"nothing: {name} needs {least / 1e9:.0f} GB of {card / 1e9:.0f}; take more devices, or a smaller length or "
        "batch.micro"
    )
