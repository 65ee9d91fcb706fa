"""The fixed set of small runs gives the numbers of an earlier version (see tests/golden/runs.py)."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.slow]

# Another processor trains other weights from the same seed, so only the size of the numbers can be held there.
ELSEWHERE = 0.25
NUMBERS = ("value", "stderr", "ci_low", "ci_high", "p_holm")


def runs_module() -> ModuleType:
    path = Path(__file__).parent / "golden" / "runs.py"
    spec = importlib.util.spec_from_file_location("golden_runs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def identity(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in NUMBERS}


def test_every_verb_gives_the_numbers_that_it_gave(tmp_path: Path):
    golden = runs_module()
    found = golden.make_runs(tmp_path)
    same_weights = golden.weights_fingerprint() == (golden.KEPT / "weights.txt").read_text().strip()
    for name in golden.COMMANDS:
        expected = json.loads((golden.KEPT / f"{name}.json").read_text())
        if same_weights:
            assert found[name] == expected, name
            continue
        assert found[name]["config"] == expected["config"], name
        assert [row["metric"] for row in found[name]["rows"]] == [
            row["metric"] for row in expected["rows"]
        ], name
        if name in ("measure", "ppl", "train"):
            for row, other in zip(found[name]["rows"], expected["rows"], strict=True):
                assert identity(row) == identity(other), name
                if row["metric"] in ("loss", "sce", "entropy", "cross_entropy"):
                    assert math.isclose(row["value"], other["value"], rel_tol=ELSEWHERE), (name, row)
