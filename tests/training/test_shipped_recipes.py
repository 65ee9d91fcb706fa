"""Each recipe of a paper, as it ships but for its sizes, runs on a tiny model; what it extends loads again.

Models that a recipe cannot train are refused before the first step.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sharded_recipes import LENGTH, tiny
from trainers import run

from checks.zoo.architectures import animals, build
from lengthwise.checkpoints.clex_rotary import clex_modules
from lengthwise.errors import UsageError
from lengthwise.subjects import load
from lengthwise.training import Recipe, read_recipe, train

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


Make = Callable[..., Recipe]


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.arange(60)[None]).logits


@pytest.mark.parametrize("method", ["yarn", "clex"])
@pytest.mark.parametrize("adapter", [None, {"r": 2}], ids=["whole", "adapter"])
def test_what_was_trained_loads_again(make, tmp_path, method, adapter):
    extend = {"method": method, "factor": 4.0, "original_length": 8}
    recipe = make(steps=2, extend=extend, adapter=adapter, optimizer={"learning_rate": 0.05})
    train(recipe, tmp_path)
    loaded, checkpoint = (
        load(str(folder)) if adapter is None else load(recipe.model, adapter=str(folder))
        for folder in (tmp_path / "model", tmp_path / "checkpoints" / "checkpoint-2")
    )
    assert (loaded.extension.method, loaded.extension.extended_length) == (method, 32)
    assert "Context extension" in (tmp_path / "model" / "README.md").read_text()
    learned = [module.frequencies.down.abs().max().item() for _, module in clex_modules(loaded.model)]
    assert (max(learned, default=0.0) > 0.01) == (method == "clex"), "the learned part was trained and saved"
    torch.testing.assert_close(logits(checkpoint.model), logits(loaded.model))


REFUSED = {
    # Its table of positions is 16 by 64: it trains on 1,024 tokens.
    "reformer": "trains on 1024 tokens alone",
    "xlnet": "depends on a later token",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_so(name: str, make: Make, tmp_path: Path) -> None:
    [animal] = (each for each in animals() if each.name == name)
    build(animal, tmp_path / "model")
    recipe = make(model=str(tmp_path / "model"), length=32, steps=1)
    with pytest.raises(UsageError, match=REFUSED[name]):
        train(recipe, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
