import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from lengthwise import versions
from lengthwise.cli.output import print_tables
from lengthwise.errors import MissingError
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import read_results
from lengthwise_studies import costs
from lengthwise_studies.paper import table1
from lengthwise_studies.section3.panels import FIGURES
from lengthwise_studies.study_table import plan_study, studies, study_named

PANELS = [panel for panels in FIGURES.values() for panel in panels]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_all_of_section_3_at_smoke_scale(lengthwise: Callable[..., Any]) -> None:
    done = lengthwise("reproduce", "section3", "--scale", "smoke", "--steps", 3, "--out", "run")
    assert done.code == 0, done.err
    assert "far better than 1/2" not in done.out, "strings of up to 12 bits cannot judge the figures' claims"
    page = Path("run/report.html").read_text()
    for panel in PANELS:
        assert f"{panel.name}. {panel.title}" in page
    assert {path.stem for path in Path("run/figures").iterdir()} >= {"panel-1a-adam", "theory-growth"}
    assert Path("run/figures/tables.md").read_text().startswith("**1a: ")
    results = read_results(Path("run/results.json"))
    assert (results.kind, results.partial) == ("synth-all", False)
    assert {row.arm for row in results.rows} == {cell.key for panel in PANELS for cell in panel.cells}
    assert read_results(Path("run/parts/theory/results.json")).kind == "synth-theory"


def test_a_finished_study_is_only_read(lengthwise: Callable[..., Any]) -> None:
    command = ("reproduce", "figure5", "--scale", "smoke", "--steps", 3, "--out", "run")
    done = lengthwise(*command)
    assert lengthwise(*command).code == 2, "without --resume it is in the way"
    again = lengthwise(*command, "--resume")
    assert (again.code, again.out) == (0, done.out)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("figure6",), "figure6"),
        (("figure1", "--scale", "smok", "--out", "run"), "did you mean 'smoke'"),
        (("figure1", "--scale", "smoke", "--seeds", 0, "--out", "run"), "seeds is 0"),
        (("theorem1", "--seeds", 2, "--out", "run"), "takes no seeds"),
        (("table6",), "a folder"),
        (("tiny-books", "--jobs", 2, "--ray", "local", "--out", "run"), "one of them"),
        (("figure1", "--jobs", 2, "--out", "run"), "no arms"),
        (("table6", "--scale", "smoke", "--dry-run", "--jobs", 2), "in sequence"),
        (("table6", "--scale", "smoke", "--dry-run", "--ray", "local"), "in sequence"),
        (("table6", "--explain", "--jobs", 2), "trains nothing"),
        (("table6", "--explain", "--dry-run"), "one of them"),
    ],
)
def test_mistakes_are_told(lengthwise: Callable[..., Any], command: tuple[Any, ...], told: str) -> None:
    refused = lengthwise("reproduce", *command)
    assert (refused.code, told in refused.err) == (2, True), refused.err
    assert not Path("run").exists()


def test_a_folder_without_longbench_s_files_is_refused_before_anything_is_trained(
    lengthwise: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str) -> None:
        raise AssertionError("to import a study takes seconds")

    monkeypatch.setattr("lengthwise_studies.study_table.study_named", refuse)
    Path("other").mkdir()
    Path("other/rows.jsonl").write_text('{"text": "something else"}\n')
    for data in ("nonexistent", "other"):
        for how in (("--dry-run",), ("--explain",), ("--out", "run")):
            refused = lengthwise("reproduce", "table2", "--scale", "smoke", "--data", data, *how)
            assert refused.code == 3
            assert f"_e.jsonl in {data}" in refused.err
    assert [path.name for path in Path().iterdir()] == ["other"]


@pytest.mark.parametrize("how", [("--dry-run",), ("--explain",), ("--out", "run")])
def test_without_matplotlib_the_extra_is_named(lengthwise, monkeypatch, how):
    found = versions.importlib.util.find_spec
    monkeypatch.setattr(
        versions.importlib.util, "find_spec", lambda name: None if name == "matplotlib" else found(name)
    )
    refused = lengthwise("reproduce", "table2", "--scale", "smoke", *how)
    assert (refused.code, "'lengthwise[figures]'" in refused.err) == (3, True), refused.err


def test_memory_is_told_in_plain_numbers() -> None:
    cost = costs.StudyCost(what="a model", memory_bytes=132_000_000_000)
    assert costs.costs_table([cost], caption="").rows[0][5] == "130 GB"


def test_theorem_1_gives_a_verdict_on_every_claim(lengthwise: Callable[..., Any]) -> None:
    done = lengthwise("reproduce", "theorem1", "--scale", "smoke", "--out", "run")
    assert done.code == 0, done.err
    for verdict in ("does not hold", "holds", "vacuous"):
        assert verdict in done.out


@pytest.mark.parametrize("how", [("--explain",), ("--dry-run",), ("--out", "run")])
def test_json_is_alone_on_standard_output_and_says_what_the_tables_say(
    lengthwise: Callable[..., Any], how: tuple[str, ...]
) -> None:
    command = ("reproduce", "theorem1", "--scale", "smoke", *how)
    found = lengthwise(*command, "--json").json
    assert found.get("page") == ("run/report.html" if "--out" in how else None)
    shown = lengthwise(*command, *(["--resume"] if "--out" in how else [])).out
    for table in found["tables"]:
        assert all(len(row) == len(table["columns"]) for row in table["rows"])
        assert table["caption"].split()[0] in shown
    assert sum(len(table["rows"]) for table in found["tables"]) > 0


def test_an_undefined_number_of_a_table_is_null_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    row = (math.nan, Estimate(1.0, 0.5, math.inf))
    print_tables([Table(columns=["a", "b"], rows=[row])], as_json=True)
    [table] = json.loads(capsys.readouterr().out)["tables"]
    assert table["rows"] == [[None, asdict(Estimate(1.0, 0.5, None))]]


def test_a_dry_run_tells_the_cost_and_writes_nothing(lengthwise: Callable[..., Any]) -> None:
    done = lengthwise("reproduce", "table6", "--scale", "smoke", "--dry-run")
    assert done.code == 0, done.err
    assert "expect up to three times" in done.out
    assert "tiny-books" in done.out
    assert not list(Path().iterdir())


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("name", [one["name"] for one in studies()])
def test_every_study_has_a_dry_run_at_every_scale(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The cell that is timed needs no long time here.
    monkeypatch.setattr(costs, "_MORE", 3)
    # The parts of `tables` are studies of their own.
    for scale in ["default"] if name == "tables" else study_named(name).parts[0].scales:
        table = plan_study(name, scale=scale)
        assert table.rows[-1][0] == "all"
        assert len(table.rows) > 1


def test_a_dry_run_names_the_hardware_and_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "8 NVIDIA H200" in plan_study("table6", scale="paper").notes[0]
    cells = plan_study("figure5", scale="smoke")
    assert (cells.rows[0][1], "cells" in str(cells.rows[0][0])) == (11, True)
    assert plan_study("theorem2").rows[0][0] == "Where it comes from: computed"
    demo = plan_study("demo")
    assert ("two cores" in demo.notes[0], demo.rows[-1][-1] > "01:00") == (True, True)

    def absent(name: str) -> None:
        raise MissingError("no package of gemma3-270m", fix="pip install it")

    monkeypatch.setattr(costs, "read_config", absent)
    far = plan_study("far-gemma")
    assert [str(row[0]).startswith("left out: gemma3-270m") for row in far.rows] == [True, True, False]
    [why] = far.notes
    assert why.endswith("no package of gemma3-270m; fix: pip install it")


def test_a_dry_run_of_table_1_has_a_line_for_each_model() -> None:
    table = plan_study("table1")
    names = [str(row[0]) for row in table.rows]
    assert len(names) == len(set(names))
    models = table1.SCALES["default"].arms
    assert sum(int(row[2]) for row in table.rows[:-1]) in (len(models) - 1, len(models)), (
        "Gemma is not everywhere"
    )
