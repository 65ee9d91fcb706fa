"""Each recipe of a paper, as it ships but for its sizes, runs on a tiny model."""

from pathlib import Path

import pytest
from sharded_recipes import LENGTH, tiny
from trainers import run

from lengthwise.subjects import load
from lengthwise.training import read_recipe

PAPERS = ("longqlora", "longlora", "clex", "eabf", "cream", "pose")
SMALL = ("batch.size=2", "parallel=null")


@pytest.mark.parametrize("name", PAPERS)
def test_a_papers_recipe_runs(name: str, shared: Path, tmp_path: Path):
    recipe = tiny(name, shared, *SMALL)
    if recipe.quantize is not None:
        pytest.importorskip("bitsandbytes")
    lines = run(recipe, tmp_path / "run")
    assert len(lines) == 2
    assert all(line["grad_norm"] > 0 and line["misalignment"] > 0 for line in lines)
    adapter = recipe.adapter is not None
    place = str(tmp_path / "run" / "model")
    loaded = load(recipe.model, adapter=place) if adapter else load(place)
    assert loaded.extension.method == recipe.extend.method  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["smollm2-far", "smollm2-skip", "llama3-8b-far", "llama3-8b-far-qlora"])
def test_a_recipe_for_far_context_reads_each_window_once(name: str, shared: Path, tmp_path: Path):
    recipe = tiny(name, shared, f"positions.target_length={4 * LENGTH}", *SMALL)
    if recipe.quantize is not None:
        pytest.importorskip("bitsandbytes")
    lines = run(recipe, tmp_path / "run")
    assert len(lines) == 2
    for line in lines:
        assert line["grad_norm"] > 0
        assert line["loss"] == line["cross_entropy_short"]
        assert "cross_entropy_long" not in line
    assert load(recipe.model, adapter=str(tmp_path / "run" / "model")).extension is None


@pytest.mark.parametrize("name", PAPERS)
def test_every_value_of_a_papers_recipe_stands_at_its_own_size(name: str):
    """Read as it ships, each is a recipe, and its target is what its extension reaches."""
    recipe = read_recipe(name)
    if recipe.positions is not None:
        original = recipe.extend.original_length or 4096
        assert recipe.positions.target_length == recipe.extend.factor * original
