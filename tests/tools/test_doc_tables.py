"""The generated tables of the documentation are those that the kept results give."""

import json
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Results, Row, rows_with
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.sizes import LAPTOP
from tools.docs.doc_tables import _without_folders, generated, keep, pages, show
from tools.docs.kept_results import BEFORE, add_run, kept_run, kept_runs, results_folder, used_rows
from tools.docs.task_tables import answers_by_depth

ROOT = Path(__file__).parents[2]
FILES = sorted(results_folder(ROOT).glob("*.json"))
SHOWS = {name: run["shows"] for path in FILES for name, run in json.loads(path.read_text())["runs"].items()}


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_results(page):
    text = page.read_text()
    assert generated(text, ROOT) == text, "make tables"


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError):
        generated("<!-- table: nothing -->\n<!-- end of table -->", ROOT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_kept_number_is_shown(path):
    plain = json.loads(path.read_text())
    shown = set()
    for name in plain["runs"]:
        keys = {tuple(arm): key for *arm, key in SHOWS[name]}
        results = kept_runs(path.parent)[name].results
        for row in used_rows(results, show):
            shown.add((keys[row.arm, row.reference, row.seed], row.place, row.model))
        assert _without_folders(results.provenance) == results.provenance
    assert len(shown) == sum(map(len, plain["numbers"].values()))


def test_a_kept_table_names_its_commit_and_holds_the_losses_of_its_arms():
    """So that a page shows our perplexities beside the paper's. Only first trainings lack either."""
    of_papers = {
        name: run.results
        for name, run in kept_runs(results_folder(ROOT)).items()
        if run.results.kind in (*TABLES, "table1") and run.variant != BEFORE
    }
    without = {
        name
        for name, results in of_papers.items()
        if "commit" not in results.provenance or not rows_with(results.rows, metric="loss", reference=None)
    }
    assert not without


def test_no_number_is_stored_twice():
    """No two arms agree in all that was measured of both."""
    arms = {}
    for name, run in kept_runs(results_folder(ROOT)).items():
        keys = {tuple(arm): key for *arm, key in SHOWS[name]}
        for row in run.results.rows:
            arm = arms.setdefault(keys[row.arm, row.reference, row.seed], {})
            number = (row.value, row.stderr, row.n)
            assert arm.setdefault((row.place, row.model), number) == number
    for (key, own), (other, those) in combinations(arms.items(), 2):
        both = own.keys() & those.keys()
        assert not both or any(own[place] != those[place] for place in both), (key, other)


def test_kept_are_the_numbers_of_tables_and_no_folders_of_the_machine(tmp_path):
    of = {"model": "m", "seed": 0, "arm": "SCE 0.1", "task": "perplexity", "length": 2 * LAPTOP.trained}
    rows = [
        Row(**of, metric="loss", reference="plain CE", value=1 / 3, p_holm=0.5),
        Row(**of, metric="loss", reference="plain CE", value=1 / 3, position=8),
        Row(**of, metric="perplexity", reference="plain CE", value=2.0),
        Row(**of, metric="loss", value=3.0),
    ]
    where = {"command": ["/home/me/lengthwise"], "model": {"source": "/home/me/m", "dtype": "a/b"}}
    store = {"arms": {"SCE 0.1, seed 0": {"perplexity": "key/perplexity.jsonl"}}}
    config = {"size": LAPTOP.to_dict()}
    run = Results(kind="table4", model_name="m", config=config, rows=rows, provenance=where | store)
    (tmp_path / "results.json").write_text(run.to_json())
    results_folder(tmp_path).mkdir(parents=True)
    path = keep(tmp_path, tmp_path, "gpu")
    assert path == results_folder(tmp_path) / "paper-gpu.json"
    kept = kept_run(tmp_path, "table4-gpu")
    assert kept.rows == [replace(rows[0], value=0.333333333, p_holm=None), rows[3]]
    assert kept.provenance == {"command": ["lengthwise"], "model": {"source": "m", "dtype": "a/b"}}
    with pytest.raises(UsageError):
        kept_run(tmp_path, "table4-laptop")


def test_of_an_earlier_training_stays_what_claims_read(tmp_path):
    row = Row(model="m", task="perplexity", metric="loss", value=3.0, length=2 * LAPTOP.trained, seed=0)
    results_folder(tmp_path).mkdir(parents=True)
    steps = LAPTOP.to_dict() | {"steps": 7}

    def trained(started: str, value: float, size: dict[str, Any], seeds: int = 3) -> None:
        rows = [replace(row, arm="SCE 0.1")]
        for seed in range(seeds):
            difference = replace(row, arm="SCE 0.1", reference="plain CE", value=value + seed, seed=seed)
            other = replace(difference, task="misalignment", metric="jeffreys", length=LAPTOP.window)
            rows += [difference, other]
        run = Results(kind="table4", model_name="m", config={"size": size}, rows=rows)
        run.provenance = {"started": started, "commit": "c", "command": ["lengthwise"]}
        (tmp_path / "results.json").write_text(run.to_json())
        keep(tmp_path, tmp_path, "laptop")

    def kept() -> dict[str, tuple[str, list[float | None]]]:
        return {
            name: (run.variant, [one.value for one in run.results.rows if one.seed == 0])
            for name, run in kept_runs(results_folder(tmp_path)).items()
        }

    # The same run, kept once more, is no other training. Claims read nothing of other steps or of one seed.
    for started, value, size, seeds in (
        ("sunday", 0.1, steps, 3),
        ("monday", 0.3, LAPTOP.to_dict(), 1),
        ("tuesday", 0.5, LAPTOP.to_dict(), 3),
        ("tuesday", 0.5, LAPTOP.to_dict(), 3),
    ):
        trained(started, value, size, seeds)
        assert kept() == {"table4-laptop": ("", [3.0, value, value])}
    trained("friday", 0.7, LAPTOP.to_dict())
    assert kept() == {
        "table4-laptop": ("", [3.0, 0.7, 0.7]),
        "table4-laptop-again": (BEFORE, [0.5]),
    }
    before = kept_run(tmp_path, "table4-laptop-again")
    assert before.provenance == {"started": "tuesday", "commit": "c"}
    trained("sunday", 0.9, LAPTOP.to_dict())
    assert {name: values for name, (_, values) in kept().items()} == {
        "table4-laptop": [3.0, 0.9, 0.9],
        "table4-laptop-again": [0.5],
        "table4-laptop-again-again": [0.7],
    }


def test_runs_share_the_arms_whose_numbers_are_equal(tmp_path):
    path = tmp_path / "paper.json"

    def run(arm: str, losses: dict[int, float]) -> Results:
        rows = [
            Row(model="m", task="perplexity", metric="loss", value=value, length=length, arm=arm, seed=0)
            for length, value in losses.items()
        ]
        return Results(kind="k", model_name="m", config={}, rows=rows)

    add_run(path, "first", run("books: SCE", {64: 1.0, 128: 2.0}))
    add_run(path, "second", run("SCE", {128: 2.0, 256: 3.0}))
    add_run(path, "other", run("SCE", {64: 1.0, 128: 2.5}))
    assert {key: len(rows) for key, rows in json.loads(path.read_text())["numbers"].items()} == {
        "first: books: SCE, seed 0": 3,
        "other: SCE, seed 0": 2,
    }
    found = {name: one.results.rows for name, one in kept_runs(tmp_path).items()}
    assert found["second"] == run("SCE", {64: 1.0, 128: 2.0, 256: 3.0}).rows
    assert found["other"] == run("SCE", {64: 1.0, 128: 2.5}).rows


def test_a_run_takes_the_place_of_the_one_that_it_replaces(tmp_path):
    """The other keeps the numbers that both had, and nothing else moves in the file."""
    path = tmp_path / "paper.json"
    row = Row(model="m", task="perplexity", metric="loss", value=1.0, length=64, arm="SCE", seed=0)
    run = Results(kind="k", model_name="m", config={}, rows=[row])
    for name, kept in (("one", run), ("two", run), ("one", replace(run, rows=[replace(row, value=3.0)]))):
        add_run(path, name, kept)
    plain = json.loads(path.read_text())
    assert list(plain["runs"]) == ["one", "two"]
    found = {name: [row.value for row in one.results.rows] for name, one in kept_runs(tmp_path).items()}
    assert found == {"one": [3.0], "two": [1.0]}
    assert list(plain["numbers"]) == ["one: SCE, seed 0", "two: SCE, seed 0"]


def test_answers_by_depth_have_a_row_for_each_depth_and_the_mean_last():
    def row(length, depth, value, **more):
        return Row(model="m", task="qa", metric="accuracy", value=value, length=length, depth=depth, **more)

    rows = [
        row(64, None, 0.5),
        row(64, 50.0, 0.25),
        row(64, 0.0, 0.75),
        row(32, 0.0, 1.0),
        row(32, None, 1.0),
    ]
    rows.append(replace(rows[0], task="another", value=0.1))
    table = answers_by_depth(Results(kind="eval", model_name="m", config={}, rows=rows), "qa")
    assert table.columns == ["", "32 tokens", "64 tokens"]
    assert [[line[0], *(cell and cell.value for cell in line[1:])] for line in table.rows] == [
        ["depth 0 %", 1.0, 0.75],
        ["depth 50 %", None, 0.25],
        ["all depths", 1.0, 0.5],
    ]
