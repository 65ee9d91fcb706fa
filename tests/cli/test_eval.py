from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model


@pytest.fixture(scope="module")
def long_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("eval") / "model", max_position_embeddings=2048))


@pytest.fixture
def command(long_model: str, text: list[str]) -> list[Any]:
    options = ["--mode", "likelihood", "--length", 500, "--depth", 0, "--depth", 100, "--limit", 2]
    return ["eval", long_model, "needle_multi_key", *text, *options]


def test_a_table_and_a_run_folder(lengthwise: Callable[..., Any], command: list[Any], tmp_path: Path) -> None:
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


def test_wrong_usage(lengthwise: Callable[..., Any], long_model: str) -> None:
    unknown = lengthwise("eval", long_model, "niddle")
    assert unknown.code == 2
    assert "'needle'" in unknown.err
    rare = lengthwise("eval", long_model, "needle", "--story", "x")
    assert rare.code == 2
    assert "--stories" in rare.err
    # Given at its default, but given.
    split = lengthwise("eval", long_model, "longbench_trec_e", "--max-length", 99, "--split", "test")
    assert (split.code, "split" in split.err) == (2, True)
