"""The generated tables of the documentation are those that the kept results give."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Results, Row, read_results
from tools.docs.doc_tables import _without_folders, generated, keep, pages
from tools.docs.task_tables import against_chance, answers_by_depth

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_results(page):
    text = page.read_text()
    assert generated(text, ROOT) == text, "make tables"


def test_a_changed_number_is_found():
    text = (ROOT / "docs" / "reference" / "hardware.md").read_text()
    changed = text.replace("| 16 | windows | 3.0 L |", "| 16 | windows | 3.1 L |")
    assert changed != text
    assert generated(changed, ROOT) == text


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError):
        generated("<!-- table: nothing -->\n<!-- end of table -->", ROOT)


def test_kept_results_have_no_bins_and_no_folders_of_the_machine(tmp_path):
    rows = [
        Row(model="m", task="t", metric="x", value=1 / 3),
        Row(model="m", task="limit", metric="used_up_to", value=512.0),
        Row(model="m", task="limit", metric="benefit", value=0.5, length=64),
        Row(model="m", task="perplexity", metric="perplexity", value=2.0),
        Row(model="m", task="t", metric="x", value=2.0, position=0, position_end=8),
        Row(model="m", task="t", metric="x", value=2.0, context=8, context_other=4),
        Row(model="m", task="t", metric="loss", value=3.0, arm="SCE after 50 steps"),
        Row(model="m", task="t", metric="sce", value=4.0, arm="SCE after 50 steps"),
        Row(model="m", task="t", metric="sce", value=5.0, arm="after all"),
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "studies" / "results").mkdir(parents=True)
    where = {
        "command": ["/home/me/lengthwise", "table4"],
        "model": {"source": "/home/me/models/m", "dtype": "a/b"},
    }
    run = Results(kind="table4", model_name="m", config={}, rows=rows, provenance=where)
    (tmp_path / "run" / "results.json").write_text(run.to_json())
    kept = keep(tmp_path / "run", tmp_path, "gpu")
    assert kept == tmp_path / "studies" / "results" / "table4-gpu.json"
    assert read_results(kept).rows == [replace(rows[0], value=0.333333333), rows[1], rows[6], rows[8]]
    assert read_results(kept).provenance == {
        "command": ["lengthwise", "table4"],
        "model": {"source": "m", "dtype": "a/b"},
    }


def test_tasks_beside_guessing_have_a_column_for_each_model():
    def run(model, accuracy):
        named = {"model": model, "task": "qa", "unit": "share"}
        rows = [
            Row(**named, metric="accuracy", value=accuracy, ci_low=0.0, ci_high=0.5),
            Row(**named, metric="accuracy", value=0.9, depth=50.0),
            Row(**named, metric="chance", value=0.2),
            Row(model=model, task="group", metric="accuracy", value=0.7),
        ]
        return Results(kind="eval", model_name=model, config={}, rows=rows)

    found = against_chance([run("small", 0.25), run("large", 0.5)])
    assert found.columns == ["", "guessing", "small", "large"]
    [[task, chance, small, large]] = found.rows
    assert (task, chance, small.value, large.value) == ("qa", "0.20", 0.25, 0.5)


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


def test_no_kept_file_names_a_folder_of_the_machine_that_made_it():
    for path in (ROOT / "studies" / "results").glob("*.json"):
        kept = read_results(path).provenance
        assert _without_folders(kept) == kept, path.name
