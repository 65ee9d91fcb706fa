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


@pytest.fixture(scope="module")
def own(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and a text that a test may change and restores."""
    folder = tmp_path_factory.mktemp("own")
    for name in ("model", "text"):
        shutil.copytree(shared / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def recipe(make: Make, own: Path) -> Recipe:
    return make(model=str(own / "model"), data={"corpus": str(own / "text"), "split": "all"})


@pytest.fixture(scope="module")
def whole(recipe: Recipe, own: Path) -> Path:
    train(recipe, own / "whole")
    return own / "whole"


@pytest.fixture(scope="module")
def begun(recipe: Recipe, own: Path, stopped_at: Any) -> Path:
    with stopped_at(5):
        train(recipe, own / "begun")
    return own / "begun"


@pytest.fixture
def run(begun: Path, tmp_path: Path) -> Path:
    """A run that was stopped in step 5 of 6, with checkpoints of steps 2 and 4."""
    return shutil.copytree(begun, tmp_path / "run")


@pytest.mark.parametrize("what", ["weights", "tokenizer", "corpus"])
def test_changed_inputs_are_refused(what: str, recipe: Recipe, run: Path, own: Path, shared: Path):
    if what == "weights":
        save_tiny_model(own / "model", seed=1)
    elif what == "corpus":
        (own / "text" / "1.txt").write_text(tiny_text(600, seed=9))
    else:
        path = own / "model" / "tokenizer.json"
        state = json.loads(path.read_text())
        state["model"]["merges"].pop()
        path.write_text(json.dumps(state))
    before = (run / "metrics.jsonl").read_bytes()
    try:
        with pytest.raises(UsageError, match=what):
            train(recipe, run, resume=True)
    finally:
        shutil.copytree(shared, own, dirs_exist_ok=True)
    assert (run / "metrics.jsonl").read_bytes() == before
    assert (run / "checkpoints" / "checkpoint-4" / "complete.json").exists()


def rows(run: Path) -> list[Any]:
    return [row.value for row in read_results(run / "results.json").rows]


@pytest.mark.parametrize(
    ("name", "damage"),
    [("trainer_state.json", "cut"), ("rng_state.pth", "gone"), ("complete.json", "nested")],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(name, damage, recipe, run, whole, caplog):
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
    assert rows(run) == rows(whole)


def test_without_a_whole_checkpoint_training_starts_again(recipe, run, whole, caplog):
    for step in (2, 4):
        (run / "checkpoints" / f"checkpoint-{step}" / "optimizer.pt").write_bytes(b"")
    results = train(recipe, run, resume=True)
    assert results.provenance["resumed_at_step"] == 0
    assert "checkpoint-2" in caplog.text
    assert metrics(run) == metrics(whole)


def test_damage_that_keeps_the_size_is_named_where_it_shows(recipe: Recipe, run: Path):
    file = run / "checkpoints" / "checkpoint-4" / "optimizer.pt"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(LengthwiseError, match="checkpoint-4") as raised:
        train(recipe, run, resume=True)
    assert "weights_only" not in str(raised.value)


def test_what_is_saved_has_the_modes_of_the_umask(make: Make, tmp_path: Path):
    before = os.umask(0o022)
    try:
        train(make(adapter={"r": 2}), tmp_path / "run")
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
