from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model
from tests.tiny_folders import rewritten

Run = Callable[..., Any]


def test_extend_writes_a_model_that_loads(lengthwise: Run, model: str, tmp_path: Path) -> None:
    done = lengthwise(
        "extend", model, "--method", "yarn", "--factor", 2, "--set", "beta-fast=16", "--out", "m", "--json"
    )
    assert done.code == 0, done.err
    assert done.json["extended_length"] == 256
    assert done.json["options"]["beta_fast"] == 16
    assert done.json["written_to"] == "m"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]
    assert load("m").extension.method == "yarn"
    assert "what was done" in lengthwise("extend", model, "--method", "ntk", "--factor", 2, "--out", "n").out


def test_what_nothing_reads_is_said_of_the_model_that_is_extended(
    lengthwise: Run, caplog: pytest.LogCaptureFixture
) -> None:
    misspelt = rewritten(save_tiny_model(Path("own")), rope_thetta=5e5)
    assert lengthwise("extend", misspelt, "--method", "yarn", "--factor", 2, "--out", "m").code == 0
    assert "Did you mean rope_theta?" in caplog.text


def test_a_dry_run_writes_nothing_and_says_the_same(lengthwise: Run, model: str, tmp_path: Path) -> None:
    arguments = ("extend", model, "--method", "clex", "--factor", "4", "--original-length", "64", "--json")
    planned = lengthwise(*arguments, "--dry-run").json
    assert list(tmp_path.iterdir()) == []
    done = lengthwise(*arguments, "--out", "m").json
    assert done.pop("written_to") == "m"
    assert planned == done
    assert planned["rope_parameters"]["rope_type"] == "lengthwise_clex"
    assert planned["loads_with"].startswith("lengthwise.load")
    assert "what would be done" in lengthwise(*arguments[:-1], "--dry-run").out


def test_a_dry_run_of_a_model_that_is_not_made_yet_does_not_make_it(lengthwise: Run, tmp_path: Path) -> None:
    planned = lengthwise("extend", "smollm2-135m", "--method", "pi", "--factor", 2, "--dry-run", "--json")
    assert planned.code == 0
    assert "rope_parameters" not in planned.json


def test_what_is_there_is_not_written_over(lengthwise: Run, model: str, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "thesis.txt").write_text("years of work")
    done = lengthwise("extend", model, "--method", "yarn", "--factor", 2, "--out", "m")
    assert done.code == 2
    assert "m exists" in done.err
    assert [path.name for path in (tmp_path / "m").iterdir()] == ["thesis.txt"]
