from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.results import read_results
from lengthwise.studies.synthetic.figures import FIGURES, cells_of


def test_every_study_at_once_at_smoke_scale(lengthwise: Callable[..., Any]) -> None:
    done = lengthwise("synth", "all", "--scale", "smoke", "--steps", 3, "--out", "run")
    assert done.code == 0, done.err
    assert "The paper's claims" not in done.out, "strings of up to 12 bits cannot judge them"
    page = Path("run/report.html").read_text()
    for panel in FIGURES["all"].panels:
        assert f"{panel.name}. {panel.title}" in page
    assert "Theorem 2, exactly" in page
    assert {path.stem for path in Path("run/figures").iterdir()} >= {"panel-1a-adam", "theory-growth"}
    assert Path("run/figures/tables.md").read_text().startswith("**1a: ")
    results = read_results(Path("run/results.json"))
    assert not results.partial
    assert {row.arm for row in results.rows} >= {cell.key for cell in cells_of(FIGURES["all"])}


def test_a_finished_study_is_only_read(lengthwise: Callable[..., Any]) -> None:
    command = ("synth", "figure5", "--scale", "smoke", "--steps", 3, "--out", "run")
    done = lengthwise(*command)
    assert lengthwise(*command).code == 2, "without --resume it is in the way"
    again = lengthwise(*command, "--resume")
    assert (again.code, again.out) == (0, done.out)


def test_mistakes_are_told(lengthwise: Callable[..., Any]) -> None:
    mistyped = lengthwise("synth", "figure2", "--out", "run")
    assert mistyped.code == 2
    assert "no synthetic study 'figure2'" in mistyped.err
    assert "did you mean" in mistyped.err
    none = lengthwise("synth", "figure1", "--scale", "smoke", "--seeds", 0, "--out", "run")
    assert none.code == 2
    assert "seeds is 0" in none.err
    assert not Path("run").exists()


def test_ls_names_every_study_and_its_verb(lengthwise: Callable[..., Any]) -> None:
    listed = lengthwise("ls", "studies", "--json").json["studies"]
    assert {entry["name"] for entry in listed if entry["verb"] == "synth"} == set(FIGURES)
