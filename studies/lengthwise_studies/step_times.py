"""This machine: the dtype that it is fast in, and what a training step of each arm takes."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from lengthwise.checkpoints.resolve import quiet_transformers
from lengthwise.files import atomic_write_json
from lengthwise.settings import Dtype
from lengthwise.training.build import build_trainer, trainer_settings
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import load_for_training, training_documents

ROUNDS = 4
STEPS = 6
"""Of each arm in each round; the first is not counted."""


def fast_dtype() -> Dtype:
    """bfloat16 where the processor multiplies it at full speed, else float32.

    It decides between minutes and hours on a CPU. Small disagreements need float32 all the same: bf16 rounding alone
    is a few hundredths of a nat.
    """
    # torch 2.8 does not tell.
    processor = getattr(torch.cpu, "get_capabilities", dict)()
    fast = any(processor.get(unit) for unit in ("avx512_bf16", "amx_bf16"))
    if fast or (torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)):
        return "bfloat16"
    return "float32"


def measure_step_times(recipes: Mapping[str, Recipe], kept: Path) -> dict[str, float]:
    """Seconds a step of each recipe: the fastest of `ROUNDS` rounds, in each of which every recipe takes its turn.

    There are fewer rounds where they would take more steps than the training. The fastest, because whatever else the
    machine does only adds time: with medians two arms that do the same work came out 28 % apart while tests ran
    beside them. Loading, the first step and checkpoints are not counted. The times are kept in the file `kept` and
    read from there by a later call, so that a resumed study trains for as many steps as it began with.
    """
    if kept.is_file():
        return json.loads(kept.read_text(encoding="utf-8"))
    found: dict[str, list[float]] = {name: [] for name in recipes}
    rounds = max(1, min([ROUNDS, *(recipe.steps // STEPS for recipe in recipes.values())]))
    for _ in range(rounds):
        for name, recipe in recipes.items():
            found[name] += _step_times(recipe.model_copy(update={"steps": STEPS, "save_every": STEPS + 1}))
    seconds = {name: min(times) for name, times in found.items()}
    kept.parent.mkdir(parents=True, exist_ok=True)
    atomic_write_json(kept, seconds)
    return seconds


class _Clock(TrainerCallback):
    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *arguments: Any, **kwargs: Any) -> None:
        self._began = time.perf_counter()

    def on_step_end(self, *arguments: Any, **kwargs: Any) -> None:
        self.seconds.append(time.perf_counter() - self._began)


def _step_times(recipe: Recipe) -> list[float]:
    loaded = load_for_training(recipe)
    documents, _ = training_documents(recipe, loaded.tokenizer)
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder, quiet_transformers():
        trainer = build_trainer(recipe, trainer_settings(recipe, Path(folder)), loaded, documents)
        trainer.add_callback(clock)
        trainer.train()
    return clock.seconds[1:]
