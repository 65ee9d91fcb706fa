from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model

SIZES = ("--lengths", 16, "--lengths", 32, "--windows", 8)


@pytest.fixture
def runs(lengthwise: Callable[..., Any], model: str, text: list[str], tmp_path: Path) -> list[str]:
    """Two models measured on the same text."""
    save_tiny_model(tmp_path / "other", seed=1)
    for name, which in (("before", model), ("after", "other")):
        assert lengthwise("ppl", which, *text, *SIZES, "--out", name).code == 0
    return ["before", "after"]


def test_a_table_of_paired_differences(lengthwise: Callable[..., Any], runs: list[str]) -> None:
    done = lengthwise("difference", *runs)
    assert done.code == 0
    assert "difference [95 % interval]" in done.out
    assert re.search(r"^ +loss +16 +other .* [+-]\d\.\d+ \[[+-]", done.out, flags=re.MULTILINE)
    assert re.search(r"\d+ of 8 differences are more than noise", done.out)
    assert lengthwise("difference", *runs, "--format", "csv").out.startswith("model,task,metric,value,")
    assert lengthwise("difference", *runs, "--format", "latex").out.startswith(r"\begin{table}")
    found = lengthwise("difference", *runs, "--reference", "after", "--metric", "loss", "--json").json
    differences = [row for row in found["rows"] if "reference" in row]
    assert [(row["metric"], row["length"], row["reference"]) for row in differences] == [
        ("loss", 16, "other"),
        ("loss", 32, "other"),
    ]
    assert all(0 <= row["p_holm"] <= 1 for row in differences)


def test_models_and_runs_have_a_verb_each(lengthwise: Callable[..., Any], runs: list[str]) -> None:
    done = lengthwise("compare", *runs)
    assert done.code == 3
    assert "`lengthwise difference`" in done.err
