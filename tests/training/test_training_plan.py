import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import LlamaConfig

from checks.zoo.architectures import animals, build
from lengthwise.errors import UsageError
from lengthwise.training import plan, read_recipe, train, training_plan
from lengthwise.training.recipe import Recipe
from lengthwise.training.starting_model import add_adapter, load_for_training

Make = Callable[..., Recipe]


def test_the_plan_of_a_step(make: Make):
    recipe = make(batch={"size": 4, "micro": 2})
    result = plan(recipe)
    assert (result["tokens_per_step"], result["tokens_to_run"]) == (4 * 2 * 16, 6 * 4 * 2 * 16)
    assert (result["micro_batch"], result["accumulation"], result["processes"]) == (2, 2, 1)
    assert (result["min_context"], result["offsets"]) == (8, (1, 7))
    assert result["settings"] == recipe.to_dict()
    assert "notes" not in result
    json.dumps(result)


@pytest.mark.parametrize("adapter", [None, {"r": 2}, {"r": 3, "target_modules": ["q_proj"]}])
def test_parameters_are_counted_without_weights(make: Make, adapter: dict | None):
    recipe = make(adapter=adapter)
    model = add_adapter(load_for_training(recipe).model, recipe.adapter)
    result = plan(recipe)
    assert result["parameters"] == sum(p.numel() for p in model.parameters())
    assert result["trainable_parameters"] == sum(p.numel() for p in model.parameters() if p.requires_grad)


LONG_TEACHES = {"alpha": 1.0, "divergence": "kl", "detach": "long", "ce_on": "short"}


def test_work_and_memory_are_those_of_the_views_that_are_read(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(training_plan, "seconds_at_least", lambda work, **_: (work, ""))
    adapter = {"r": 2}

    def cost(**objective: Any) -> tuple[float, int]:
        found = plan(make(objective=objective, adapter=adapter))
        return found["seconds_at_least"], found["memory_bytes"]

    both, both_memory = cost(alpha=1.0, divergence="jeffreys")
    short, short_memory = cost(alpha=0.0, ce_on="short")
    taught, taught_memory = cost(**LONG_TEACHES)
    assert short == both / 2
    # A forward pass of the long view is 2 operations a weight and token.
    weights = plan(make(adapter=adapter))["parameters"]
    assert taught - short == 6 * 4 * 16 * 2 * weights
    assert short_memory == taught_memory < both_memory


def test_processes_share_the_step(make: Make, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lengthwise.machine._rank_and_count", lambda: (0, 2))
    result = plan(make(batch={"size": 4}))
    assert (result["micro_batch"], result["accumulation"], result["processes"]) == (2, 1, 2)
    with pytest.raises(UsageError, match="3"):
        plan(make(batch={"size": 3}))


def test_an_embedded_model_is_not_made_for_a_plan():
    result = plan(read_recipe("tiny-books"))
    assert result["parameters"] == 935_040
    assert result["memory_bytes"] is None
    assert result["tokens_to_run"] == 150 * 2048


def test_a_plan_for_many_devices_needs_a_configuration_alone(make: Make, tmp_path: Path):
    """A Llama of 7B: 16 bytes of state a weight, whole or in shares."""
    LlamaConfig(max_position_embeddings=4096).save_pretrained(tmp_path)

    def need(**parallel: Any) -> dict[str, Any]:
        settings = {"precision": "bfloat16", "gradient_checkpointing": True, "batch": {"size": 8}}
        return plan(make(model=str(tmp_path), **settings, **parallel), devices=8)

    weights = 6_738_415_616
    whole, shard = need(), need(parallel={"sharding": "full_shard"})
    assert whole["parameters"] == weights
    assert "text_not_checked" in whole
    # 16 bytes of state, autocast's copy and the buckets of gradients; the rest is small at 16 tokens.
    assert whole["memory_bytes"] == pytest.approx(22 * weights, rel=0.02)
    block = 32000 * 4096
    # Two blocks and the head in bfloat16, the gradient of the largest unit in both types.
    largest = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    gathered = 2 * (2 * largest + block) + 6 * max(block, largest)
    assert shard["memory_bytes"] == pytest.approx(2 * weights + gathered, rel=0.02)
    grad_op = need(parallel={"sharding": "shard_grad_op"})
    assert grad_op["memory_bytes"] - shard["memory_bytes"] == 2 * (weights - 2 * largest - block)
    offload = need(parallel={"offload": True})
    assert shard["memory_bytes"] - offload["memory_bytes"] == offload["host_memory_bytes"] == 2 * weights
    assert "host_memory_bytes" not in shard


@pytest.mark.parametrize("packing", [False, True])
def test_a_plan_refuses_windows_longer_than_the_text(make, recipe_settings, packing):
    data = recipe_settings["data"] | {"packing": packing}
    assert "text_not_checked" not in plan(make(data=data, length=64))
    for length in (50_000, 10**8):
        with pytest.raises(UsageError, match="too short"):
            plan(make(data=data, length=length))


def test_a_plan_needs_its_text(make: Make, tmp_path: Path):
    with pytest.raises(UsageError, match="/dev/zero"):
        plan(make(data={"corpus": "/dev/zero"}))


def test_a_warm_up_beyond_the_last_step_is_noted(make: Make, tmp_path: Path):
    recipe = make(steps=1, optimizer={"learning_rate": 0.01} | {"warmup_steps": 5})
    [note] = plan(recipe)["notes"]
    assert "warmup_steps = 5" in note
    assert note in train(recipe, tmp_path / "run").notes


@pytest.mark.filterwarnings("ignore")
def test_a_model_that_recomputes_nothing_is_refused_before_it_is_trained(make: Make, tmp_path: Path):
    build(next(each for each in animals() if each.name == "openai-gpt"), tmp_path / "m")
    recipe = make(model=str(tmp_path / "m"), gradient_checkpointing=True)
    for attempt in (plan, load_for_training):
        with pytest.raises(UsageError, match="gradient_checkpointing, which a OpenAIGPTLMHeadModel does not"):
            attempt(recipe)


@pytest.mark.parametrize("work", [plan, load_for_training])
@pytest.mark.parametrize("adapter", [None, {"r": 2}])
def test_a_precision_that_the_processor_emulates(make: Make, monkeypatch, caplog, work, adapter):
    monkeypatch.setattr("lengthwise.machine.slowdown", lambda dtype: 60.0)
    work(make(adapter=adapter))
    assert not caplog.text
    work(make(adapter=adapter, precision="bfloat16"))
    assert "60 times" in caplog.text
    assert "--set precision=float32" in caplog.text
    caplog.clear()
    monkeypatch.setattr(Recipe, "on_cpu", False)
    load_for_training(make(adapter=adapter, precision="bfloat16"))
    assert not caplog.text, "the weights are loaded on the processor, and trained elsewhere"
