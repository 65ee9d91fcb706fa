"""The study of views: its arms and its tables."""

from __future__ import annotations

from pathlib import Path

from lengthwise.results import Results, Row
from lengthwise.studies.gap_views import BASELINE, EXPERIMENT, LOSSES, RECALLS, START, sections
from lengthwise.training import read_recipe

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


def test_tables_and_sentences_have_every_arm(tmp_path: Path):
    rows = [
        Row(
            model="m",
            task=line.task,
            metric=line.metric,
            value=value,
            length=line.length,
            distance=line.distance,
            arm=arm,
            reference=reference,
            seed=None if arm == START else 0,
        )
        for line in (*LOSSES, *RECALLS)
        for arm in (START, *TRAINED)
        for reference, value in ((None, 2.0 + (arm == BASELINE)), (BASELINE, -1.0))
        if arm not in (START, BASELINE) or reference is None
    ]
    [section] = sections(Results(kind="gap-views", model_name="m", config={}, rows=rows), tmp_path)
    values, differences = section.tables
    assert values.columns == ["", START, *TRAINED]
    assert len(values.rows) == len(differences.rows) == 7
    assert all(cell is not None for row in (*values.rows, *differences.rows) for cell in row)
    for arm in set(TRAINED) - {BASELINE}:
        assert any(sentence.startswith(f"{arm}: recall times 0.67 at") for sentence in section.paragraphs)
