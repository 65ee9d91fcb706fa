from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lengthwise.errors import MissingError, UsageError
from lengthwise.training import plan, read_recipe
from lengthwise.training.recipe import Recipe
from lengthwise.training.trained_model import add_adapter, load_for_training

Make = Callable[..., Recipe]


def test_the_plan_of_a_step(make: Make):
    recipe = make(batch={"size": 4, "micro": 2})
    result = plan(recipe).to_dict()
    assert (result["tokens_per_step"], result["tokens"]) == (4 * 2 * 16, 6 * 4 * 2 * 16)
    assert (result["micro_batch"], result["accumulation"], result["processes"]) == (2, 2, 1)
    assert (result["min_context"], result["offsets"]) == (8, [1, 7])
    assert result["recipe"] == recipe.to_dict()
    json.dumps(result)


@pytest.mark.parametrize("adapter", [None, {"r": 2}, {"r": 3, "target_modules": ["q_proj"]}])
def test_parameters_are_counted_without_weights(make: Make, adapter: dict | None):
    recipe = make(adapter=adapter)
    model = add_adapter(load_for_training(recipe).model, recipe.adapter)
    result = plan(recipe).to_dict()
    assert result["parameters"] == sum(p.numel() for p in model.parameters())
    assert result["trainable_parameters"] == sum(p.numel() for p in model.parameters() if p.requires_grad)


def test_what_costs_memory(make: Make):
    def memory(**changes) -> int:
        return plan(make(**changes)).cost.memory_bytes or 0

    full = memory()
    # Weights, gradient and two moments in float32.
    assert full > 16 * 28832
    assert memory(batch={"size": 4, "micro": 1}) < full
    assert memory(gradient_checkpointing=True) < full
    assert memory(adapter={"r": 2}) < full


def test_processes_share_the_step(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    result = plan(make(batch={"size": 4})).to_dict()
    assert (result["micro_batch"], result["accumulation"], result["processes"]) == (2, 1, 2)
    with pytest.raises(UsageError, match="3"):
        plan(make(batch={"size": 3}))


def test_an_embedded_model_is_not_made_for_a_plan():
    result = plan(read_recipe("tiny-books")).to_dict()
    assert result["parameters"] == 935_040
    assert result["memory_bytes"] is None
    assert result["tokens"] == 150 * 2048


def test_a_missing_model_is_an_error(make: Make, tmp_path: Path):
    with pytest.raises(MissingError, match="missing"):
        plan(make(model=str(tmp_path / "missing")))
