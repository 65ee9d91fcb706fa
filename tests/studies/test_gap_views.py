"""The study of views, in small: its arms, its tables, and going on after an interruption."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.report.html import Section
from lengthwise.studies import gap_views
from lengthwise.studies.gap_views import ARMS, BASELINE, PLAN, START, gap_views_section, run_gap_views
from lengthwise.training import read_recipe

pytestmark = pytest.mark.real

SMALL = replace(PLAN, windows=2, segments=2, pairs=2)


def test_the_arms_differ_in_views_and_term_alone():
    recipes = {
        name: read_recipe("tiny-books-gap", arm.changes).to_dict() | {"objective": None, "views": None}
        for name, arm in ARMS.items()
    }
    for name, recipe in recipes.items():
        expected = recipes["gap, CE"] | ({"positions": None} if "truncation" in name else {})
        assert recipe == expected
    teacher = read_recipe("tiny-books-gap", ARMS["gap, teacher 1"].changes)
    assert (teacher.views, teacher.objective.divergence, teacher.objective.detach) == ("gap", "kl", "long")


@pytest.mark.slow
def test_an_interrupted_study_goes_on_to_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    original, calls = gap_views.evaluate, []

    def stopping(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(gap_views, "evaluate", stopping)
        with pytest.raises(KeyboardInterrupt):
            run_gap_views(tmp_path / "run", steps=2, plan=SMALL)
    whole = run_gap_views(tmp_path / "run", steps=2, plan=SMALL, resume=True)
    assert json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert {row.arm for row in whole.rows} == {START, *ARMS}
    assert {row.arm for row in whole.rows if row.reference} == set(ARMS) - {BASELINE}
    section = gap_views_section(whole)
    assert isinstance(section, Section)
    values, differences = section.tables
    assert values.columns == ["", START, *ARMS]
    assert len(values.rows) == len(differences.rows) == 7
    assert all(cell is not None for row in (*values.rows, *differences.rows) for cell in row)
    # Each arm's sentence follows from its rows.
    for arm in set(ARMS) - {BASELINE}:
        assert any(sentence.startswith(f"{arm}: recall times") for sentence in section.paragraphs)


def test_no_seed_is_refused(tmp_path: Path):
    with pytest.raises(UsageError, match="seeds is 0"):
        run_gap_views(tmp_path / "run", seeds=0)
