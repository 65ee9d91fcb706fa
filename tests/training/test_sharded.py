"""Heads that FSDP2 shards give the numbers of a whole one. Held by real processes: gloo, CPU."""

import json
from pathlib import Path

import pytest
import resumed_worker
import sharded_recipes
import sharded_worker
import torch
from safetensors.torch import load_file
from trainers import metrics, run, train_double

from lengthwise.files import first_damaged
from lengthwise.subjects import load


@pytest.mark.slow
def test_two_processes_with_a_sharded_model_equal_one_with_a_whole_one(tmp_path, start_ranks):
    """Heads sharded in every way, AlignmentTrainer, clex with its plan's memory, and a tensor parallel model."""
    one, two = tmp_path / "one", tmp_path / "two"
    two.mkdir()
    sharded_recipes.inputs(two)
    start_ranks(Path(sharded_worker.__file__), two)
    errors = json.loads((two / "errors.json").read_text())
    # In fp32.
    assert errors.pop("tensor parallel")["losses"] <= 1e-5
    assert errors.keys() == sharded_worker.WAYS.keys()
    for way, measured in errors.items():
        for name, error in measured.items():
            # Parameters in fp64; "fp32" makes its products in fp32.
            assert error <= (1e-5 if way == "fp32" else 1e-12), (way, name)

    train_double(one, accumulation=2)
    left, right = (json.loads((side / "log.json").read_text()) for side in (one, two))
    assert [entry.keys() for entry in left] == [entry.keys() for entry in right]
    for expected, got in zip(left[:-1], right[:-1], strict=True):
        for name in expected.keys() - {"eval_runtime", "eval_samples_per_second", "eval_steps_per_second"}:
            assert got[name] == pytest.approx(expected[name], rel=1e-9), name
    assert sum("eval_perplexity/loss@32" in entry for entry in right) == 2
    assert sum("eval_jeffreys" in entry for entry in right) == 2
    weights, gathered = (load_file(side / "model" / "model.safetensors") for side in (one, two))
    assert weights.keys() == gathered.keys()
    for name, value in weights.items():
        assert (value - gathered[name]).abs().max().item() <= 1e-9, name

    memory = json.loads((two / "clex" / "memory.json").read_text())
    assert memory["allocated"] == memory["planned"]
    recipe = sharded_recipes.tiny("clex", two, "precision=float32", "parallel=null")
    left, right = run(recipe, one / "clex"), metrics(two / "clex")
    for expected, got in zip(left, right, strict=True):
        for name in ("loss", "misalignment", "grad_norm"):
            assert got[name] == pytest.approx(expected[name], rel=1e-4), name
    whole, saved = (load(str(side / "clex" / "model")) for side in (one, two))
    assert saved.extension == whole.extension
    ids = torch.arange(32)[None]
    difference = (saved.model(ids).logits - whole.model(ids).logits).abs().max().item()
    assert difference <= 1e-3
    step = two / "clex" / "checkpoints" / "checkpoint-2"
    assert first_damaged(step) is None
    torch.testing.assert_close(load(str(step)).model(ids).logits, saved.model(ids).logits)


@pytest.mark.slow
def test_an_adapter_is_resumed_in_two_processes(tmp_path, start_ranks):
    """With accelerate 1.14 the second process loses its adapter, and the next losses differ by 2e-6."""
    sharded_recipes.inputs(tmp_path)
    start_ranks(Path(resumed_worker.__file__), tmp_path)
    through, resumed = json.loads((tmp_path / "through.json").read_text()), metrics(tmp_path / "run")
    assert len(through) == len(resumed) == 4
    for expected, got in zip(through, resumed, strict=True):
        for name in ("loss", "grad_norm"):
            assert got[name] == pytest.approx(expected[name], rel=1e-7), (got["step"], name)
