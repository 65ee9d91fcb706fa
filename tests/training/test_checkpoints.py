from __future__ import annotations

import json
from pathlib import Path

import pytest

from lengthwise.files import first_damaged
from lengthwise.training.training_run import (
    checkpoint_step,
    last_complete_checkpoint,
)


def checkpoint(folder: Path, step: int, *, marked: bool = True) -> Path:
    path = folder / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "weights").write_bytes(b"12345")
    if marked:
        (path / "complete.json").write_text(json.dumps({"weights": 5}))
    return path


def test_the_newest_whole_checkpoint_is_found_by_number(tmp_path: Path):
    for step in (9, 10, 2):
        checkpoint(tmp_path, step)
    checkpoint(tmp_path, 11, marked=False)
    (tmp_path / "checkpoint-12").write_text("a file")
    (tmp_path / "checkpoint-best").mkdir()
    found = last_complete_checkpoint(tmp_path)
    assert found == tmp_path / "checkpoint-10"
    assert checkpoint_step(found) == 10


@pytest.mark.parametrize("damage", ["short", "gone", "torn mark"])
def test_damage_is_seen(tmp_path: Path, damage: str):
    path = checkpoint(tmp_path, 1)
    assert first_damaged(path) is None
    if damage == "short":
        (path / "weights").write_bytes(b"123")
    elif damage == "gone":
        (path / "weights").unlink()
    else:
        (path / "complete.json").write_text('{"weights": ')
    assert first_damaged(path) is not None
