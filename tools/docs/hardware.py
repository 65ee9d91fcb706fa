"""The tables of the hardware page: memory by model and length, from shapes by the formulas of `--dry-run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import AutoConfig

from lengthwise.alignment import Objective
from lengthwise.checkpoints.loading import model_skeleton
from lengthwise.measure.perplexity import Perplexity
from lengthwise.report.tables import Cell, Table
from lengthwise.subjects.plan import cache_bytes, reading_bytes
from lengthwise.training.recipe import Adapter, Batch, Data, Optimizer, Parallel, Recipe
from lengthwise.training.starting_model import recipe_skeleton
from lengthwise.training.training_plan import device_memory
from lengthwise_studies.known_shapes import SHAPES

LENGTHS = (4096, 32768, 131072)
DEVICES = 8
SIZES = {
    "135M": SHAPES["smollm2-135m"],
    "1B": SHAPES["meta-llama/Llama-3.2-1B"],
    "8B": SHAPES["meta-llama/Llama-3.1-8B"],
    "70B": SHAPES["meta-llama/Llama-3.1-70B"],
}
ONE_VIEW = Objective(alpha=0.0, ce_on="short")


def config_of(size: str) -> Any:
    """The configuration of the model of a size."""
    return AutoConfig.for_model(**SIZES[size])


def _table(first: str, needs: dict[str, Callable[[str, int], int]]) -> Table:
    """A line for each need and length, in GB by size."""
    rows: Sequence[Sequence[Cell]] = [
        [name, f"{length // 1024}k", *(_gigabytes(need(size, length)) for size in SIZES)]
        for name, need in needs.items()
        for length in LENGTHS
    ]
    return Table(columns=[first, "length", *SIZES], rows=rows)


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f}" if size < 1e10 else f"{size / 1e9:,.0f}"


def reading_table() -> Table:
    """Memory to measure in bfloat16, at the default batch size."""
    return _table("verbs", {"measure, ppl, longppl": _reading, "limit, eval": _reading_with_cache})


def _reading(size: str, length: int) -> int:
    config, at_once = config_of(size), Perplexity(lengths=(length,)).batch_size * length
    return reading_bytes(config, model_skeleton(config).num_parameters(), at_once=at_once, itemsize=2)


def _reading_with_cache(size: str, length: int) -> int:
    """With the keys and values of a row, and of the copy that a question continues."""
    return _reading(size, length) + cache_bytes(config_of(size), 2 * length, itemsize=2)


def training_table() -> Table:
    """Memory of each device to train one view of one window."""
    return _table("trained", {"LoRA": _lora, f"all weights, full_shard on {DEVICES}": _all_weights})


def _lora(size: str, length: int) -> int:
    projections = ["q_proj", "k_proj", "v_proj", "o_proj"]
    adapter = Adapter.model_validate({"r": 16, "lora_alpha": 32, "target_modules": projections})
    return training_memory(size, length=length, adapter=adapter)


def _all_weights(size: str, length: int) -> int:
    return training_memory(size, DEVICES, length=length, parallel=Parallel())


def training_memory(size: str, devices: int = 1, *, objective: Objective = ONE_VIEW, **settings: Any) -> int:
    """Bytes on each device to train one window at a time in bfloat16, with gradient checkpointing."""
    recipe = Recipe(
        model="llama",
        data=Data(corpus="books"),
        steps=1,
        optimizer=Optimizer(learning_rate=1e-4),
        batch=Batch(size=1),
        objective=objective,
        precision="bfloat16",
        gradient_checkpointing=True,
        **settings,
    )
    model = recipe_skeleton(recipe, config_of(size))
    return device_memory(recipe, model, micro=1, devices=devices, device=torch.device("cuda"))["device"]


TABLES = {"reading": reading_table, "training": training_table}
"""Name of a table of the page -> its maker."""
