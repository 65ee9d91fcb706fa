"""The table of temperatures, from rows whose numbers are known."""

from __future__ import annotations

import pytest

from lengthwise.results import Results, Row
from lengthwise_studies.paper.sizes import LAPTOP
from tools.docs.temperatures import temperatures_table

AT_2T = {"task": "perplexity", "length": 2 * LAPTOP.trained}


def _results(rows: list[Row], kind: str) -> Results:
    config = {"size": LAPTOP.to_dict()}
    return Results(kind=kind, model_name="m", config=config, rows=rows, notes=[], provenance={})


def test_temperatures_stand_beside_the_formula() -> None:
    rows = [
        Row(model="m", metric="inverse_temperature", value=value, arm=arm, seed=seed, **AT_2T)
        for arm, values in {"plain CE": [1.0, 1.2], "SCE 0.3": [0.5, 0.7], "Jeffreys 10": [1.0, 1.0]}.items()
        for seed, value in enumerate(values)
    ]
    table = temperatures_table(_results(rows, "table4"))
    found = {row[0]: row for row in table.rows}
    at = table.columns.index("at 2T")
    assert {name: row[1] for name, row in found.items()} == {
        "plain CE": "1",
        "SCE 0.1": "0.8",
        "entropy 0.1": "0.8",
        "SCE 0.3": "0.4",
        "SCE 0.5": "none",
        "SCE 1": "none",
    }
    assert found["SCE 0.3"][at].value == pytest.approx(0.6)
    assert found["plain CE"][at].value == pytest.approx(1.1)
    assert found["SCE 1"][at] is None
