"""The tables over all kept runs, and that of temperatures, from rows whose numbers are known."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.results import Results, Row
from lengthwise_studies.paper.sizes import LAPTOP
from tools.docs.across import across_table
from tools.docs.kept_results import add_run
from tools.docs.temperatures import temperatures_table

AT_2T = {"task": "perplexity", "length": 2 * LAPTOP.trained}


def _results(rows: list[Row], kind: str) -> Results:
    config = {"size": LAPTOP.to_dict()}
    return Results(kind=kind, model_name="m", config=config, rows=rows, notes=[], provenance={})


def _differences(arm: str, values: list[float], prefix: str = "") -> list[Row]:
    names = {"arm": f"{prefix}{arm}", "reference": f"{prefix}plain CE"}
    return [
        Row(model="m", metric="loss", value=value, seed=seed, **names, **AT_2T)
        for seed, value in enumerate(values)
    ]


def test_one_line_for_each_setting_with_sce_minus_its_control_by_seed(tmp_path: Path) -> None:
    rows = [
        *_differences("SCE 0.1", [0.1, 0.2, 0.3], "CREAM: "),
        *_differences("entropy 0.1", [0.1, 0.1, 0.4], "CREAM: "),
        *_differences("untrained", [-0.5, -0.5, -0.5], "EABF: "),
        # Neither another length nor another reference nor what was measured on the way counts.
        Row(model="m", task="perplexity", metric="loss", value=9.0, arm="CREAM: SCE 0.1", seed=0,
            reference="CREAM: plain CE", length=LAPTOP.trained),
        Row(model="m", metric="loss", value=9.0, arm="CREAM: SCE 0.1 after 50 steps", seed=0,
            reference="CREAM: plain CE after 50 steps", **AT_2T),
    ]  # fmt: skip
    for scale in ("laptop", "gpu"):
        add_run(tmp_path / f"paper-{scale}.json", f"cream-{scale}", _results(rows, "cream"), scale=scale)
    table = across_table(tmp_path, "laptop")
    eabf, cream = table.rows
    assert eabf[:2] == ["cream", "EABF, books"]
    assert cream[:2] == ["cream", "CREAM, books"]
    heads = {name: index for index, name in enumerate(table.columns)}
    sce, minus = cream[heads["SCE 0.1"]], cream[heads["SCE 0.1 minus entropy 0.1"]]
    assert (sce.value, sce.low, sce.high) == (pytest.approx(0.2), 0.1, 0.3)
    assert (minus.value, minus.low, minus.high) == pytest.approx((0.0, -0.1, 0.1))
    assert eabf[heads["untrained"]].value == -0.5
    assert eabf[heads["SCE 0.1"]] is None
    assert cream[heads["untrained"]] is None


@pytest.mark.parametrize(("sce", "entropy"), [([0.1, 0.2], [0.1]), ([0.1], [0.1, 0.2])])
def test_a_seed_that_one_of_the_two_lacks_leaves_no_difference(
    tmp_path: Path, sce: list[float], entropy: list[float]
) -> None:
    rows = [*_differences("SCE 0.1", sce), *_differences("entropy 0.1", entropy)]
    add_run(tmp_path / "paper.json", "table4-laptop", _results(rows, "table4"), scale="laptop")
    table = across_table(tmp_path, "laptop")
    found = dict(zip(table.columns, table.rows[0], strict=True))
    assert found["SCE 0.1"] is not None
    assert found["SCE 0.1 minus entropy 0.1"] is None


def test_tables_of_the_same_runs_share_a_line_and_those_that_do_not_read_2t_have_none(tmp_path: Path) -> None:
    same, other = _differences("SCE 0.1", [0.1, 0.2]), _differences("SCE 0.1", [0.1, 0.3])
    for name, rows in {"table4": same, "table6": same, "table7": other}.items():
        add_run(tmp_path / "paper.json", f"{name}-laptop", _results(rows, name), scale="laptop")
    within = _results(same, "ranges")
    within.config["size"]["lengths"] = [LAPTOP.trained]
    add_run(tmp_path / "paper.json", "ranges-laptop", within, scale="laptop")
    assert [row[0] for row in across_table(tmp_path, "laptop").rows] == ["table4, table6", "table7"]


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
