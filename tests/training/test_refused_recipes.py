"""Recipes and plans with values that cannot work are refused at once, before a model is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.models.quiet import quiet_transformers
from lengthwise.training import AlignmentTrainer, plan
from lengthwise.training.build import _RecipeTrainer
from lengthwise.training.recipe import Recipe

Make = Callable[..., Recipe]
OPTIMIZER = {"learning_rate": 0.01}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"positions": {"sampler": "pose", "target_length": 10**30}}, "positions.target_length"),
        ({"length": 10**12}, "length"),
        ({"steps": True}, "steps"),
        ({"steps": 10**30}, "steps"),
        ({"seed": 2**32}, "seed"),
        ({"parallel": {}, "adapter": {"r": 2}, "quantize": "nf4"}, "parallel with quantize"),
        ({"save_at": [7]}, "save_at"),
        ({"batch": {"size": 10**30}}, "batch.size"),
        ({"optimizer": {"learning_rate": True}}, "optimizer.learning_rate"),
        ({"optimizer": OPTIMIZER | {"warmup_steps": 10**30}}, "optimizer.warmup_steps"),
    ],
)
def test_a_value_that_cannot_work_is_named(make: Make, changes: dict[str, Any], name: str):
    started = time.monotonic()
    with pytest.raises(UsageError, match=name):
        make(**changes)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("r", ["xx", -1, [1], 2.5])
def test_options_of_peft_of_a_wrong_type(make: Make, r: Any):
    with quiet_transformers(), pytest.raises(UsageError, match="LoraConfig"):
        plan(make(adapter={"r": r}))


@pytest.mark.parametrize("packing", [False, True])
def test_a_plan_refuses_windows_longer_than_the_text(
    make: Make, recipe_settings: dict[str, Any], packing: bool
):
    data = recipe_settings["data"] | {"packing": packing}
    assert plan(make(data=data, length=64)).text_not_checked is None
    for length in (50_000, 10**8):
        with pytest.raises(UsageError, match=str(length)):
            plan(make(data=data, length=length))


def test_a_plan_needs_its_text(make: Make, tmp_path: Path):
    with pytest.raises(UsageError, match="/dev/zero"):
        plan(make(data={"corpus": "/dev/zero"}))


def test_a_warm_up_beyond_the_last_step_is_noted(make: Make, tmp_path: Path):
    from lengthwise.training import train

    recipe = make(steps=1, optimizer=OPTIMIZER | {"warmup_steps": 5})
    [note] = plan(recipe).to_dict()["notes"]
    assert "warmup_steps = 5" in note
    assert note in train(recipe, tmp_path / "run").notes


def test_shards_without_an_accelerator_are_refused(make: Make, monkeypatch: pytest.MonkeyPatch):
    # accelerate makes no plugin on CPUs, so there is nothing that would shard.
    def without_plugin(trainer: Any, *args: Any, **kwargs: Any) -> None:
        trainer.accelerator = SimpleNamespace(state=SimpleNamespace())

    monkeypatch.setattr(AlignmentTrainer, "__init__", without_plugin)
    _RecipeTrainer(recipe=make())
    with pytest.raises(UsageError, match="parallel"):
        _RecipeTrainer(recipe=make(parallel={}))
