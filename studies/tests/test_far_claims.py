"""What the studies of far context claim and show: verdicts, tables and pictures."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from lengthwise.report.tables import Estimate
from lengthwise.results import Results, Row
from lengthwise.training import read_recipe
from lengthwise_studies.far import arms
from lengthwise_studies.far.claims import claims_on
from lengthwise_studies.far.page import (
    depths_over_seeds_table,
    far_tables,
    over_seeds_table,
    verdicts_table,
)
from lengthwise_studies.far.pictures import MOST_ARMS, depth_pictures
from lengthwise_studies.far.studies import ON_BOOKS, ON_CODE, PARTS

START, CONTROL, HALF, EVERY = (arm.name for arm in (arms.START, arms.CONTROL, arms.HALF, arms.EVERY))
REPEATS = arms.REPEATS

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
        kind="far-repeats",
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
    table = verdicts_table(results(*differences), lambda found: claims_on(HALF, CONTROL, found))
    assert [row[table.columns.index("verdict")] for row in table.rows] == expected
    # No paper says anything of this form.
    assert "paper" not in table.columns


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


@pytest.mark.parametrize("kind", ["far-repeats", "far-code", "far-gemma-repeats", "far-tracking"])
def test_every_claim_on_repeats_has_its_differences(kind: str) -> None:
    """A claim about a pair that the experiment does not compare would never get a verdict."""
    part = PARTS[kind]
    assert part.claims is not None
    experiment = part.experiment
    found = results(0.2, 0.004, 0.0)
    tasks = part.scales["default"].measures["eval"]["tasks"]
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
    table = verdicts_table(replace(found, rows=found.rows + middle), part.claims)
    column = table.columns.index("verdict")
    assert len(table.rows) >= 4
    assert {row[column] for row in table.rows} == {"reproduced"}


def test_long_texts_are_measured_as_in_far_reach_and_every_form_is_judged_at_each_length() -> None:
    scale, reach = (PARTS[kind].scales["default"] for kind in ("far-long-texts", "far-reach"))
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
    claims = PARTS["far-long-texts"].claims
    assert claims is not None
    table = verdicts_table(found, claims)
    verdicts = [row[table.columns.index("verdict")] for row in table.rows]
    assert (
        verdicts
        == ["reproduced", "not distinguishable from noise", "opposite", "reproduced", "reproduced"] * 2
    )
    # No question is asked, so no table has depths.
    arms, over_seeds, differences = far_tables(found, CONTROL)
    losses = [f"loss at {length:,}" for length in lengths]
    columns = ["", *losses, "loss of key tokens", "used up to"]
    assert [table.columns for table in (differences, over_seeds)] == [columns] * 2
    assert not arms.rows
    assert [row[0] for row in differences.rows] == [
        arm if seed == 0 else f"{arm} (seed {seed})" for seed in range(3) for arm in (HALF, REPEATS.name)
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


def _recipe(kind: str, arm: Any) -> dict[str, Any]:
    part = PARTS[kind]
    recipe = part.experiment.recipe_of(part.scales["default"], arm, 0)
    assert recipe is not None
    return recipe.to_dict()


def test_arms_on_code_differ_in_their_text_alone() -> None:
    for books_arm, code_arm in zip(ON_BOOKS, ON_CODE, strict=True):
        books, code = _recipe("far-code", books_arm), _recipe("far-code", code_arm)
        assert (books["data"]["corpus"], code["data"]["corpus"]) == ("books", "code")
        assert code == {**books, "data": {**books["data"], "corpus": "code"}}
        # The store then has the arms of far-repeats.
        assert books == _recipe("far-repeats", books_arm)


def test_what_is_measured_is_what_ships() -> None:
    recipe = _recipe("far-repeats", REPEATS)
    assert {**read_recipe("smollm2-far").to_dict(), "precision": recipe["precision"]} == recipe
