from __future__ import annotations

import json
from pathlib import Path

from lengthwise.training.training_run import last_complete_checkpoint


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
