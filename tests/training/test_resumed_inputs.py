"""What a resumed run reads is what it was begun with: text, base weights, checkpoints."""

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trainers import metrics

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.results import read_results
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.training import train
from lengthwise.training.recipe import Recipe
from lengthwise.training.training_run import last_complete_checkpoint

Make = Callable[..., Recipe]


@pytest.fixture
def own(shared: Path, tmp_path: Path) -> dict[str, Any]:
    """A model and a text that a test may change."""
    shutil.copytree(shared / "model", tmp_path / "model")
    shutil.copytree(shared / "text", tmp_path / "text")
    return {"model": str(tmp_path / "model"), "data": {"corpus": str(tmp_path / "text"), "split": "all"}}


@pytest.fixture
def interrupted_run(make, own, tmp_path, stopped_at) -> tuple[Recipe, Path]:
    """A run that was stopped in step 5 of 6, with checkpoints of steps 2 and 4."""
    recipe = make(**own)
    with stopped_at(5):
        train(recipe, tmp_path / "run")
    return recipe, tmp_path / "run"


@pytest.mark.parametrize("what", ["weights", "tokenizer", "corpus"])
def test_changed_inputs_are_refused(interrupted_run: tuple[Recipe, Path], what: str, tmp_path: Path):
    recipe, run = interrupted_run
    if what == "weights":
        save_tiny_model(tmp_path / "model", seed=1)
    elif what == "corpus":
        (tmp_path / "text" / "1.txt").write_text(tiny_text(600, seed=9))
    else:
        path = tmp_path / "model" / "tokenizer.json"
        state = json.loads(path.read_text())
        state["model"]["merges"].pop()
        path.write_text(json.dumps(state))
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(UsageError, match=what):
        train(recipe, run, resume=True)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert (run / "checkpoints" / "checkpoint-4" / "complete.json").exists()


def rows(run: Path) -> list[Any]:
    return [row.value for row in read_results(run / "results.json").rows]


@pytest.mark.parametrize(
    ("name", "damage"),
    [("trainer_state.json", "cut"), ("rng_state.pth", "gone"), ("complete.json", "nested")],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    interrupted_run, name, damage, tmp_path, caplog
):
    recipe, run = interrupted_run
    train(recipe, tmp_path / "whole")
    file = run / "checkpoints" / "checkpoint-4" / name
    if damage == "gone":
        file.unlink()
    elif damage == "nested":
        file.write_text("[" * 100_000)
    else:
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with caplog.at_level(logging.WARNING):
        results = train(recipe, run, resume=True)
    assert str(file) in caplog.text
    assert results.provenance["resumed_at_step"] == 2
    assert rows(run) == rows(tmp_path / "whole")


def test_without_a_whole_checkpoint_training_starts_again(interrupted_run, tmp_path, caplog):
    recipe, run = interrupted_run
    train(recipe, tmp_path / "whole")
    for step in (2, 4):
        (run / "checkpoints" / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"")
    results = train(recipe, run, resume=True)
    assert results.provenance["resumed_at_step"] == 0
    assert "checkpoint-2" in caplog.text
    assert metrics(run) == metrics(tmp_path / "whole")


def test_damage_that_keeps_the_size_is_named_where_it_shows(interrupted_run: tuple[Recipe, Path]):
    recipe, run = interrupted_run
    file = run / "checkpoints" / "checkpoint-4" / "optimizer.pt"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(LengthwiseError, match="checkpoint-4") as raised:
        train(recipe, run, resume=True)
    assert "weights_only" not in str(raised.value)


def test_what_is_saved_has_the_modes_of_the_umask(make: Make, own: dict[str, Any], tmp_path: Path):
    before = os.umask(0o022)
    try:
        train(make(**own, adapter={"r": 2}), tmp_path / "run")
    finally:
        os.umask(before)
    for folder in ("model", "checkpoints/checkpoint-6"):
        files = [path for path in (tmp_path / "run" / folder).iterdir() if path.is_file()]
        assert files
        assert {path.stat().st_mode & 0o777 for path in files} == {0o644}
        assert (tmp_path / "run" / folder).stat().st_mode & 0o777 == 0o755


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> None:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"12345")
    if marked:
        (path / "complete.json").write_text(json.dumps({"weights": 5}))


def test_the_newest_whole_checkpoint_is_found_by_number(tmp_path: Path):
    for step in (9, 10, 2):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 11, marked=False)
    (tmp_path / "checkpoint-12").write_text("a file")
    (tmp_path / "checkpoint-best").mkdir()
    assert last_complete_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
