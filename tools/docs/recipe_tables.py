"""The shipped 7B and 8B recipes: what they need on each device by their plan; what `make check-recipes` measured."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from lengthwise.errors import UsageError
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.training.recipe import Parallel, Recipe, read_recipe, shipped_recipes
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import device_memory, run_operations
from lengthwise_studies.costs import shape

KIND = "sharded-recipes"
"""The kind of the results of `make check-recipes`; the task of its rows:"""
RUN = "two steps in two processes"
RECIPES = (
    "clex",
    "cream",
    "eabf",
    "pose",
    "longlora",
    "longqlora",
    "llama3-8b-far",
    "llama3-8b-far-qlora",
)
RATE = 4e14
"""bfloat16 operations a second of a card: an H100 at 40 % of its peak, as the recipes assume."""
OWN_DEVICES = {"longlora": 1, "longqlora": 1, "llama3-8b-far-qlora": 1}
"""How many devices a recipe is written for, where they are not eight."""
_SPREAD = (
    ("whole copies", 1),
    ("whole copies", 8),
    ("shard_grad_op", 8),
    ("full_shard", 8),
    ("full_shard with offload", 8),
)


def plans_table() -> Table:
    """A line for each recipe at its own size: memory of each device by the way of sharding, and time of the products.

    The time is that of the devices that the recipe is written for, at `RATE` each.

    Raises:
        UsageError: the comment of a recipe does not name what it needs on the devices that it is written for.
    """
    lines = []
    for name in RECIPES:
        recipe, needs, devices = read_recipe(name), memory_on_cards(name), OWN_DEVICES.get(name, 8)
        own = needs[_own_way(recipe), devices]
        if not re.search(
            rf"\b{own}\b", shipped_recipes()[name].read_text(encoding="utf-8").partition("\nmodel:")[0]
        ):
            raise UsageError(f"the recipe {name} does not say {own}", fix="change its first comment")
        time = f"{_duration(run_operations(recipe, _model(name)) / devices)} on {devices}"
        lines.append((f"{name} ({time})", *(needs.get(key) for key in _SPREAD)))
    ways_ = ("one card" if devices == 1 else f"{way} on {devices}" for way, devices in _SPREAD)
    columns = ("recipe (matrix products)", *ways_)
    return Table(columns=columns, rows=lines)


def ways(recipe: Recipe, devices: int) -> Iterator[tuple[str, Recipe]]:
    """The ways to spread a recipe over devices, by name, from the fastest to the one that needs least memory."""
    yield "whole copies", recipe.model_copy(update={"parallel": None})
    if recipe.quantize is not None or devices == 1:
        return
    yield "shard_grad_op", recipe.model_copy(update={"parallel": Parallel(sharding="shard_grad_op")})
    yield "full_shard", recipe.model_copy(update={"parallel": Parallel()})
    yield "full_shard with offload", recipe.model_copy(update={"parallel": Parallel(offload=True)})


def _duration(operations: float) -> str:
    seconds = operations / RATE
    unit, one = ("h", 3600) if seconds >= 3600 else ("min", 60)
    return f"{seconds / one:.{1 if seconds < 10 * one else 0}f} {unit}"


@cache
def memory_on_cards(name: str) -> dict[tuple[str, int], str]:
    """(way of sharding, number of cards) -> what a recipe needs on each, in whole GB."""
    recipe, model = read_recipe(name), _model(name)
    found = {}
    for devices in sorted({devices for _, devices in _SPREAD}):
        micro, _ = recipe.batch.cut(devices)
        for way, spread in ways(recipe, devices):
            need = device_memory(spread, model, micro=micro, devices=devices, device=torch.device("cuda"))
            found[way, devices] = f"{need['device'] / 1e9:.0f} GB"
    return found


@cache
def _model(name: str) -> Any:
    recipe = read_recipe(name)
    return recipe_skeleton(recipe, shape(recipe.model))


def _own_way(recipe: Recipe) -> str:
    """The way that the recipe itself names."""
    return next(name for name, way in ways(recipe, 8) if way.parallel == recipe.parallel)


def runs_table(results: Results) -> Table:
    """A line for each recipe: bytes of its state in the first of two processes, by the plan, and both losses."""
    lines = []
    for name in results.config["recipes"]:
        by = {row.metric: row.value or 0 for row in results.select(task=RUN, arm=name)}
        bytes_ = (f"{by[side]:,.0f}" for side in ("allocated", "planned"))
        lines.append((name, *bytes_, *(f"{by[f'loss {step}']:.4f}" for step in (1, 2))))
    columns = ("recipe", "bytes in the first process", "bytes by the plan", "loss of step 1", "of step 2")
    return Table(columns=columns, rows=lines)
