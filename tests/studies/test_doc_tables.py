"""The generated tables of the documentation are those that the kept results give."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Results, Row, read_results
from lengthwise.studies.doc_tables import generated, keep, pages

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", pages(ROOT), ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_results(page):
    text = page.read_text()
    assert generated(text, ROOT) == text, "make tables"


def test_a_changed_number_is_found():
    text = (ROOT / "docs" / "explanation" / "findings.md").read_text()
    assert generated(text.replace("0.81 [0.67, 0.94]", "0.91 [0.67, 0.94]", 1), ROOT) == text


def test_an_unknown_table_is_refused():
    with pytest.raises(UsageError):
        generated("<!-- table: nothing -->\n<!-- end of table -->", ROOT)


def test_kept_results_have_no_bins(tmp_path):
    rows = [
        Row(model="m", task="t", metric="x", value=1.0),
        Row(model="m", task="t", metric="x", value=2.0, position=0, position_end=8),
        Row(model="m", task="t", metric="x", value=2.0, context=8, context_other=4),
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "results").mkdir()
    run = Results(kind="table4", model_name="m", config={}, rows=rows)
    (tmp_path / "run" / "results.json").write_text(run.to_json())
    kept = keep(tmp_path / "run", tmp_path, "gpu")
    assert kept == tmp_path / "results" / "table4-gpu.json"
    assert read_results(kept).rows == rows[:1]
