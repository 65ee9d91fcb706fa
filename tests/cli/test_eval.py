from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.testing import save_tiny_model


def test_a_table_and_a_run_folder(lengthwise: Callable[..., Any], text: list[str], tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "model", max_position_embeddings=2048)
    options = ["--mode", "likelihood", "--lengths", 500, "--depths", 0, "--depths", 100, "--samples", 2]
    command = ["eval", model, "needle_multi_key", *text, *options]
    done = lengthwise(*command, "--out", "run")
    assert done.code == 0
    assert "needle_multi_key" in done.out
    assert "500 tokens" in done.out
    read = lengthwise(*command, "--out", "run", "--resume", "--json")
    assert read.json["rows"] == lengthwise(*command, "--json", "--batch-size", 4).json["rows"]
    assert {row.get("depth") for row in read.json["rows"]} == {None, 0, 100}
    page = lengthwise("report", "run")
    assert page.code == 0
    assert (tmp_path / "run" / "figures" / "depth-needle_multi_key.svg").exists()
