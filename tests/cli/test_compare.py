from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model

SIZES = ("--length", 16, "--length", 32, "--limit", 8)


@pytest.fixture
def runs(lengthwise: Callable[..., Any], model: str, text: list[str], tmp_path: Path) -> list[str]:
    """Two models measured on the same text."""
    save_tiny_model(tmp_path / "other", seed=1)
    for name, which in (("before", model), ("after", "other")):
        assert lengthwise("ppl", which, *text, *SIZES, "--out", name).code == 0
    return ["before", "after"]


def test_a_table_of_paired_differences(lengthwise: Callable[..., Any], runs: list[str]) -> None:
    done = lengthwise("compare", *runs)
    assert done.code == 0
    assert "difference [95 % interval]" in done.out
    assert re.search(r"^ +loss +16 +other .* [+-]\d\.\d+ \[[+-]", done.out, flags=re.MULTILINE)
    assert re.search(r"\d+ of 8 differences are more than noise", done.out)
    assert lengthwise("compare", *runs, "--format", "csv").out.startswith("metric,length,run,")
    assert lengthwise("compare", *runs, "--format", "latex").out.startswith(r"\begin{table}")
    found = lengthwise("compare", *runs, "--reference", "after", "--metric", "loss", "--json").json
    differences = [row for row in found["rows"] if "reference" in row]
    assert [(row["metric"], row["length"], row["reference"]) for row in differences] == [
        ("loss", 16, "other"),
        ("loss", 32, "other"),
    ]
    assert all(0 <= row["p_holm"] <= 1 for row in differences)


def test_correlation_over_models(
    lengthwise: Callable[..., Any], runs: list[str], model: str, text: list[str]
) -> None:
    for name, which in (("m1", model), ("m2", "other")):
        lengthwise("measure", which, *text, "--length", 16, "--limit", 4, "--out", name)
    names = ("--correlate", "misalignment/jeffreys@16", "loss@32")
    done = lengthwise("compare", *runs, "m1", "m2", *names)
    assert done.code == 0
    assert "spearman" in done.out
    found = lengthwise("compare", *runs, "m1", "m2", *names, "--json").json
    assert [row["n"] for row in found["rows"][-2:]] == [2, 2]
    assert [row["metric"] for row in found["rows"]] == [
        "jeffreys",
        "loss",
        "jeffreys",
        "loss",
        "pearson",
        "spearman",
    ]
    done = lengthwise("compare", *runs, "--correlate", "jeffrey@16", "loss@32")
    assert done.code == 2
