"""`make demo` in small: the same parts, on tiny-books alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.results import read_results
from lengthwise_studies.demo import DEMO
from lengthwise_studies.study_table import produce, studies, study_named

pytestmark = [pytest.mark.real, pytest.mark.slow]


def test_the_demo_begins_with_where_the_context_ends(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    produced = produce("demo", out, scale="smoke")
    folders = [part.folder for part in DEMO.parts]
    assert folders == ["limit-tiny-books", "limit-smollm2-135m", "real-model", "tiny-books"]
    for folder in folders:
        assert not read_results(out / folder / "results.json").partial
    assert (out / "figures" / "limit-tiny-books.svg").exists()
    page = produced.page.read_text()
    assert page.index("limit-tiny-books") < page.index("real-parts") < page.index("study-recall")
    limits = produced.tables[0]
    assert [row[0] for row in limits.rows] == ["as it is", "YaRN x4"]


def test_every_study_loads_and_offers_a_smoke_scale() -> None:
    for entry in studies():
        study = study_named(entry["name"])
        assert all({"default", "smoke"} <= set(part.scales) for part in study.parts)
