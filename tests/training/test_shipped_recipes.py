"""Each recipe of a paper, as it ships but for its sizes, runs on a tiny model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from lengthwise.models import load
from lengthwise.training import read_recipe, train
from lengthwise.training.recipe import Recipe

LENGTH = 32
# What a model of 128 positions needs instead: of the original context, and of the positions.
SIZES = {
    "longqlora": ["extend.original_length=16"],
    "longlora": ["extend.original_length=16"],
    "clex": [f"extend.original_length={LENGTH}", "extend.factor=4", f"positions.target_length={4 * LENGTH}"],
    "eabf": ["extend.original_length=16", "extend.options.skip_layers=1"],
    "cream": [f"extend.original_length={LENGTH}", "extend.factor=3", f"positions.target_length={3 * LENGTH}"],
    "pose": [f"extend.original_length={LENGTH}", f"positions.target_length={4 * LENGTH}"],
}


def tiny(name: str, shared: Path, own: Sequence[str] = ()) -> Recipe:
    sizes = [
        f"model={shared / 'model'}",
        f"data.corpus={shared / 'text'}",
        "data.split=all",
        f"length={LENGTH}",
        "steps=2",
        "batch.size=2",
        "batch.micro=1",
        "device=cpu",
        "parallel=null",
    ]
    return read_recipe(name, [*sizes, *(own or SIZES[name])])


@pytest.mark.parametrize("name", SIZES)
def test_a_papers_recipe_runs(name: str, shared: Path, tmp_path: Path):
    recipe = tiny(name, shared)
    train(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    assert all(line["grad_norm"] > 0 and line["misalignment"] > 0 for line in lines)
    adapter = recipe.adapter is not None
    place = str(tmp_path / "run" / "model")
    loaded = load(recipe.model, adapter=place) if adapter else load(place)
    assert loaded.extension is not None
    assert loaded.extension.method == recipe.extend.method  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["smollm2-far", "smollm2-skip", "llama3-8b-far", "llama3-8b-far-qlora"])
def test_a_recipe_for_far_context_reads_each_window_once(name: str, shared: Path, tmp_path: Path):
    recipe = tiny(name, shared, [f"positions.target_length={4 * LENGTH}"])
    train(recipe, tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2
    for line in lines:
        assert line["grad_norm"] > 0
        assert line["loss"] == line["cross_entropy_short"]
        assert "cross_entropy_long" not in line
    assert load(recipe.model, adapter=str(tmp_path / "run" / "model")).extension is None


@pytest.mark.parametrize("name", SIZES)
def test_every_value_of_a_papers_recipe_stands_at_its_own_size(name: str):
    """Read as it ships, each is a recipe, and its target is what its extension reaches."""
    recipe = read_recipe(name)
    assert recipe.extend is not None
    if recipe.positions is not None:
        original = recipe.extend.original_length or 4096
        assert recipe.positions.target_length == recipe.extend.factor * original
