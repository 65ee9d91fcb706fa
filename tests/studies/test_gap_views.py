"""The study of views, in small: its arms and its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from lengthwise.results import read_results
from lengthwise.studies.gap_views import BASELINE, EXPERIMENT, START, sections
from lengthwise.studies.study_table import produce
from lengthwise.training import read_recipe

pytestmark = pytest.mark.real

TRAINED = {arm.name: arm for arm in EXPERIMENT.arms if arm.changes is not None}


def test_the_arms_differ_in_views_and_term_alone():
    recipes = {
        name: read_recipe("tiny-books-gap", arm.changes or ()).to_dict() | {"objective": None, "views": None}
        for name, arm in TRAINED.items()
    }
    for name, recipe in recipes.items():
        expected = recipes["gap, CE"] | ({"positions": None} if "truncation" in name else {})
        assert recipe == expected
    teacher = read_recipe("tiny-books-gap", TRAINED["gap, teacher 1"].changes or ())
    assert (teacher.views, teacher.objective.divergence, teacher.objective.detach) == ("gap", "kl", "long")


@pytest.mark.slow
def test_the_study_in_small_to_its_page(tmp_path: Path):
    produced = produce("gap-views", tmp_path / "run", scale="smoke")
    results = read_results(tmp_path / "run" / "results.json")
    assert {row.arm for row in results.rows} == {START, *TRAINED}
    assert {row.arm for row in results.rows if row.reference} == set(TRAINED) - {BASELINE}
    values, differences = produced.tables
    assert values.columns == ["", START, *TRAINED]
    assert len(values.rows) == len(differences.rows) == 7
    assert all(cell is not None for row in (*values.rows, *differences.rows) for cell in row)
    [section] = sections(results, tmp_path / "run")
    for arm in set(TRAINED) - {BASELINE}:
        assert any(sentence.startswith(arm) for sentence in section.paragraphs)
