"""The fixed set of small runs gives the numbers of an earlier version (see tests/golden/runs.py)."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden import runs as golden

pytestmark = [pytest.mark.real, pytest.mark.slow]

# Sums in float64 of thousands of terms, and what optimizer steps make of their last digits.
TOLERANCE = {"rel": 1e-9, "abs": 1e-12}


def differences(found: Any, kept: Any, place: str = "") -> list[str]:
    """Where two results differ: floats by more than a tolerance, names, counts and all else at all."""
    if isinstance(found, dict) and isinstance(kept, dict) and found.keys() == kept.keys():
        pairs = [(f"{place}/{name}", found[name], kept[name]) for name in kept]
    elif isinstance(found, list) and isinstance(kept, list) and len(found) == len(kept):
        pairs = [
            (f"{place}/{at}", one, other) for at, (one, other) in enumerate(zip(found, kept, strict=True))
        ]
    elif isinstance(found, float) and isinstance(kept, float):
        return [] if found == pytest.approx(kept, **TOLERANCE) else [f"{place}: {found}, not {kept}"]
    else:
        return [] if found == kept and type(found) is type(kept) else [f"{place}: {found}, not {kept}"]
    return [line for at, one, other in pairs for line in differences(one, other, at)]


def test_every_verb_gives_the_numbers_that_it_gave(tmp_path: Path):
    found = golden.make_runs(tmp_path)
    for name in golden.COMMANDS:
        kept = json.loads((golden.KEPT / f"{name}.json").read_text())
        assert differences(found[name], kept)[:20] == [], name


def test_a_difference_is_found():
    kept = {"n": 3, "rows": [{"metric": "loss", "value": 2.5}, {"metric": "excess", "value": -1e-6}]}
    near = {
        "n": 3,
        "rows": [{"metric": "loss", "value": 2.5 + 1e-9}, {"metric": "excess", "value": -1e-6 - 1e-13}],
    }
    other = {"n": 3, "rows": [{"metric": "loss", "value": 2.5 + 1e-8}, {"metric": "excess", "value": 1e-6}]}
    assert differences(kept, kept) == differences(near, kept) == []
    assert len(differences(other, kept)) == 2
    for change in ({"n": 4}, {"n": 3.0}, {"rows": kept["rows"][:1]}, {"more": None}):
        assert len(differences({**kept, **change}, kept)) == 1
