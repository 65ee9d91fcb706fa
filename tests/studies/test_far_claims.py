"""What the studies of far context claim and show: verdicts, tables and pictures."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from lengthwise.report.tables import Estimate
from lengthwise.results import Results, Row
from lengthwise.studies.far import (
    gemma_repeats,
    long_texts,
    longer_windows,
    repeats,
    repeats_in_code,
    repeats_on_tracking,
)
from lengthwise.studies.far.beyond_questions import FAR_REACH
from lengthwise.studies.far.depth_pictures import MOST_ARMS, depth_pictures
from lengthwise.studies.far.gemma_repeats import FAR_GEMMA_REPEATS
from lengthwise.studies.far.long_texts import FAR_LONG_TEXTS
from lengthwise.studies.far.repeats import FAR_REPEATS, REPEATS
from lengthwise.studies.far.repeats_in_code import FAR_CODE
from lengthwise.studies.far.repeats_on_tracking import FAR_TRACKING
from lengthwise.studies.far.screen import CONTROL, EVERY, HALF
from lengthwise.studies.far.study_page import (
    arm_and_seed,
    depths_over_seeds_table,
    far_tables,
    over_seeds_table,
    verdicts_table,
)
from lengthwise.studies.far.two_forms import EXPERIMENT, FAR_CONTEXT, FORMS, claims_of
from lengthwise.studies.skeleton import Study

LENGTHS = {
    "eval": {"tasks": ["needle_multi_key"], "lengths": [2048, 7000]},
    "perplexity": {"lengths": [1024, 2048]},
}


def results(far: float, cost: float, near: float) -> Results:
    """Three seeds around these differences from the control, over a hundred documents."""
    rows = [
        Row(
            model="m",
            task=task,
            metric=metric,
            value=value * (1 + 0.01 * seed),
            stderr=0.001,
            documents=100,
            length=length,
            arm=HALF,
            reference=CONTROL,
            seed=seed,
        )
        for seed in range(3)
        for task, metric, length, value in (
            ("needle_multi_key", "accuracy", 7000, far),
            ("needle_multi_key", "accuracy", 2048, near),
            ("perplexity", "loss", 1024, cost),
        )
    ]
    return Results(
        kind="far-context",
        model_name="m",
        config={"measures": deepcopy(LENGTHS), "arms": {HALF: {}}},
        rows=rows,
    )


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ((0.2, 0.004, 0.0), ["reproduced"] * 3),
        ((-0.2, 0.03, -0.2), ["opposite"] * 3),
        ((0.0, 0.01, -0.05), ["not distinguishable from noise"] * 3),
        # A gain contradicts neither the allowed cost nor the allowed loss.
        ((0.2, -0.03, 0.2), ["reproduced"] * 3),
    ],
)
def test_the_form_is_judged_by_its_three_claims(differences: tuple[float, float, float], expected: list[str]):
    table = verdicts_table(results(*differences), claims_of)
    assert [row[table.columns.index("verdict")] for row in table.rows] == expected
    # No paper says anything of this form.
    assert "paper" not in table.columns


def test_claims_compare_the_form_with_its_control_and_every_scale_has_three_seeds():
    arms = {arm.name for arm in EXPERIMENT.arms}
    found = results(0, 0, 0)
    assert [(claim.arm, claim.against) for claim in claims_of(found)] == [(HALF, CONTROL)] * 3
    found.config["arms"] = {name: {} for name in arms}
    judged = claims_of(found)
    assert [(claim.arm, claim.against) for claim in judged] == [
        (form, CONTROL) for form in FORMS for _ in range(3)
    ]
    assert {*FORMS, CONTROL} < arms
    assert {scale.seeds for scale in FAR_CONTEXT.parts[0].scales.values()} == {3}


def test_differences_over_seeds_name_another_reference_and_need_three_seeds() -> None:
    found = results(0.2, 0.004, 0.0)
    found.config["measures"]["eval"]["depths"] = [0.0]
    found.rows += [replace(row, depth=0.0, value=0.5) for row in found.rows if row.length == 7000]
    found.rows += [replace(row, reference=HALF, arm=EVERY, value=0.1) for row in found.rows]
    pairs = [HALF, f"{EVERY} minus {HALF}"]
    table, depths = over_seeds_table(found, CONTROL), depths_over_seeds_table(found, CONTROL)
    assert [row[0] for row in table.rows] == [row[0] for row in depths.rows] == pairs
    assert depths.columns == ["", "accuracy at 7,000, depth 0 %"]
    assert [row[1].value for row in depths.rows if isinstance(row[1], Estimate)] == [0.5, pytest.approx(0.1)]
    cost = table.columns.index("loss at 1,024")
    assert [row[cost].value for row in table.rows if isinstance(row[cost], Estimate)] == [
        pytest.approx(0.004 * 1.01),
        pytest.approx(0.1),
    ]
    two = replace(found, rows=[row for row in found.rows if row.seed != 2])
    assert over_seeds_table(two, CONTROL).rows == []


def test_longer_windows_have_to_keep_the_middle_and_copy_from_farther() -> None:
    found = results(0.2, 0.004, 0.0)
    repeat = {"task": "recall", "metric": "benefit", "length": None, "distance": longer_windows.FARTHEST}
    found.rows += [replace(row, **repeat, value=0.5 + 0.01 * (row.seed or 0)) for row in found.rows[::3]]
    found.config["measures"]["eval"]["depths"] = [0.0, 25.0, 50.0]
    middle = [replace(row, depth=50.0) for row in found.rows if row.length == 7000]
    for value, expected in ((0.1, "reproduced"), (-0.3, "opposite")):
        found.rows = [
            *[row for row in found.rows if row.depth is None],
            *[replace(row, value=value * (1 + 0.01 * (row.seed or 0))) for row in middle],
        ]
        table = verdicts_table(found, longer_windows.claims_of)
        by_place = {row[0]: row[table.columns.index("verdict")] for row in table.rows}
        assert by_place == {
            "far": "reproduced",
            "cost": "reproduced",
            "near": "reproduced",
            "middle": expected,
            "repeat": "reproduced",
        }


@pytest.mark.parametrize(
    ("module", "study"),
    [
        (repeats, FAR_REPEATS),
        (repeats_in_code, FAR_CODE),
        (gemma_repeats, FAR_GEMMA_REPEATS),
        (repeats_on_tracking, FAR_TRACKING),
    ],
)
def test_every_claim_on_repeats_has_its_differences(module: Any, study: Study) -> None:
    """A claim about a pair that the experiment does not compare would never get a verdict."""
    experiment = module.EXPERIMENT
    found = results(0.2, 0.004, 0.0)
    tasks = study.parts[0].scales["default"].measures["eval"]["tasks"]
    found.config["measures"]["eval"] |= {"tasks": tasks, "depths": [0.0, 50.0]}
    compared = {(arm.name, experiment.reference) for arm in experiment.arms} | set(experiment.contrasts)
    found.rows = [
        replace(row, arm=arm, reference=reference, metric=metric, task=task)
        for row in found.rows
        for arm, reference in compared
        for metric in {row.metric, "gold_probability" if row.metric == "accuracy" else row.metric}
        for task in (tasks if row.metric == "accuracy" else [row.task])
    ]
    middle = [replace(row, depth=50.0) for row in found.rows if row.length == 7000]
    table = verdicts_table(replace(found, rows=found.rows + middle), module.claims_of)
    column = table.columns.index("verdict")
    assert len(table.rows) >= 4
    assert {row[column] for row in table.rows} == {"reproduced"}


def test_long_texts_are_measured_as_in_far_reach_and_every_form_is_judged_at_each_length() -> None:
    scale, reach = (study.parts[0].scales["default"] for study in (FAR_LONG_TEXTS, FAR_REACH))
    assert (scale.measures, scale.seeds) == (reach.measures, 3)
    lengths = [1024, 4096, 8192]
    measured = {
        **{
            ("perplexity", "loss", length): of
            for length, of in zip(lengths, (0.004, 0.009, 0.03), strict=True)
        },
        ("longppl", "loss_key", 8192): -0.2,
        ("limit", "used_up_to", 12288): 900.0,
    }
    found = results(0.0, 0.004, 0.0)
    found.config["measures"] = scale.measures
    found.rows = [
        replace(
            row,
            arm=arm,
            task=task,
            metric=metric,
            length=length,
            value=value * (1 + 0.01 * (row.seed or 0)),
        )
        for row in found.rows
        if row.task == "perplexity"
        for arm in (HALF, REPEATS.name)
        for (task, metric, length), value in measured.items()
    ]
    table = verdicts_table(found, long_texts.claims_of)
    verdicts = [row[table.columns.index("verdict")] for row in table.rows]
    assert (
        verdicts
        == ["reproduced", "not distinguishable from noise", "opposite", "reproduced", "reproduced"] * 2
    )
    # No question is asked, so no table has depths.
    arms, over_seeds, differences = far_tables(found, CONTROL)
    losses = [f"loss at {length:,}" for length in lengths]
    columns = ["", *losses, "loss of key tokens", "sound up to", "used up to"]
    assert [table.columns for table in (arms, differences, over_seeds)] == [columns] * 3
    assert not arms.rows
    assert [row[0] for row in differences.rows] == [
        arm_and_seed(arm, seed) for seed in range(3) for arm in (HALF, REPEATS.name)
    ]
    # The means that the verdicts are on.
    means = [row[table.columns.index("ours")] for row in table.rows]
    assert [row[0] for row in over_seeds.rows] == [HALF, REPEATS.name]
    assert [cell for row in over_seeds.rows for cell in row[1:] if cell is not None] == means


def test_the_picture_by_depth_tells_what_the_longest_prompts_answer_at_the_beginning() -> None:
    found = results(0.2, 0.004, 0.0)
    found.rows = [
        Row(
            model="m",
            task="needle_multi_key",
            metric="accuracy",
            value=value,
            length=length,
            depth=depth,
            arm=arm,
        )
        for arm, value in ((CONTROL, 0.25), (HALF, 0.75))
        for length in (2048, 7000)
        for depth in (0.0, 50.0)
    ]
    (picture,) = depth_pictures(found)
    assert picture.alt.endswith(f"At 7,000 tokens and depth 0 %: {CONTROL} 0.25; {HALF} 0.75.")
    assert "<svg" in picture.svg
    # Seven colours tell seven arms apart.
    found.rows = [
        replace(row, arm=f"arm {number}") for number in range(MOST_ARMS + 1) for row in found.rows[:4]
    ]
    assert depth_pictures(found) == []
