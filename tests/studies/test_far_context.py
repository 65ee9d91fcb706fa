from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from lengthwise.results import Results, Row
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.far import (
    cyclic,
    extension,
    full_windows,
    gemma,
    gemma_repeats,
    ntk,
    parts,
    reach,
    repeats,
    source_code,
    steps,
    windows,
)
from lengthwise.studies.far.context import EXPERIMENT, FAR_CONTEXT, FORMS, claims_of, verdicts
from lengthwise.studies.far.cyclic import FAR_CYCLIC, FEWER
from lengthwise.studies.far.extension import FAR_EXTENSION
from lengthwise.studies.far.full_windows import FAR_FULL_WINDOWS, FULL
from lengthwise.studies.far.gemma import FAR_GEMMA
from lengthwise.studies.far.gemma_repeats import FAR_GEMMA_REPEATS
from lengthwise.studies.far.ntk import EXTENDED_REPEATS, FAR_NTK
from lengthwise.studies.far.parts import FAR_PARTS
from lengthwise.studies.far.reach import FAR_REACH
from lengthwise.studies.far.repeats import FAR_REPEATS, REPEATS
from lengthwise.studies.far.screen import CONTROL, CYCLIC, EVERY, HALF
from lengthwise.studies.far.source_code import FAR_CODE
from lengthwise.studies.far.steps import FAR_STEPS
from lengthwise.studies.far.windows import FAR_WINDOWS
from lengthwise.studies.skeleton import Study
from lengthwise.training import read_recipe

LENGTHS = {"eval": {"lengths": [2048, 7000]}, "perplexity": {"lengths": [1024, 2048]}}


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
    table = verdicts(results(*differences))
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


def test_longer_windows_have_to_keep_the_middle_and_copy_from_farther() -> None:
    found = results(0.2, 0.004, 0.0)
    repeat = {"task": "recall", "metric": "benefit", "length": None, "distance": windows.FARTHEST}
    found.rows += [replace(row, **repeat, value=0.5 + 0.01 * (row.seed or 0)) for row in found.rows[::3]]
    found.config["measures"]["eval"]["depths"] = [0.0, 25.0, 50.0]
    middle = [replace(row, depth=50.0) for row in found.rows if row.length == 7000]
    for value, expected in ((0.1, "reproduced"), (-0.3, "opposite")):
        found.rows = [
            *[row for row in found.rows if row.depth is None],
            *[replace(row, value=value * (1 + 0.01 * (row.seed or 0))) for row in middle],
        ]
        table = windows.verdicts(found)
        by_place = {row[0]: row[table.columns.index("verdict")] for row in table.rows}
        assert by_place == {
            "far": "reproduced",
            "cost": "reproduced",
            "near": "reproduced",
            "middle": expected,
            "repeat": "reproduced",
        }


def test_every_arm_of_the_longer_windows_reads_them() -> None:
    scale = FAR_WINDOWS.parts[0].scales["default"]
    recipes = [windows.EXPERIMENT.recipe_of(scale, arm, 0) for arm in windows.EXPERIMENT.arms[1:]]
    assert [recipe.length * recipe.batch.size for recipe in recipes if recipe] == [2048] * 2
    assert {recipe.positions.target_length for recipe in recipes if recipe and recipe.positions} == {8192}
    assert scale.seeds == 3


def test_more_steps_on_the_same_windows_and_questions() -> None:
    scale, windows = (study.parts[0].scales["default"] for study in (FAR_STEPS, FAR_WINDOWS))
    assert scale.measures == windows.measures
    recipes = {arm.name: steps.EXPERIMENT.recipe_of(scale, arm, 0) for arm in steps.EXPERIMENT.arms[1:]}
    shares = {}
    for name, recipe in recipes.items():
        assert recipe is not None
        assert recipe.positions is not None
        assert (recipe.steps, recipe.length, recipe.batch.size) == (180, 2048, 1)
        assert recipe.positions.target_length == 8192
        shares[name] = recipe.positions.options.get("share", 1.0)
    assert (shares[HALF], shares[EVERY]) == (0.5, 1.0)
    # The long view's positions never skip.
    assert recipes[CONTROL] is not None
    assert recipes[CONTROL].objective.ce_on == "long"
    assert scale.seeds == 1


def test_every_arm_beyond_the_trained_length_is_extended_and_skips_reach_the_extended_length() -> None:
    scale = FAR_EXTENSION.parts[0].scales["default"]
    untrained, *trained = extension.EXPERIMENT.arms
    assert (untrained.changes, untrained.method, untrained.factor) == (None, "yarn", 2.0)
    for arm in trained:
        recipe = extension.EXPERIMENT.recipe_of(scale, arm, 0)
        assert recipe is not None
        assert recipe.extend is not None
        assert recipe.positions is not None
        assert (recipe.extend.method, recipe.extend.factor) == ("yarn", 2)
        assert recipe.length * recipe.batch.size == 2048
        assert recipe.positions.target_length == 2 * 8192
    control, skips = trained
    assert control.name == extension.EXPERIMENT.reference
    assert "objective.ce_on=long" in (control.changes or ())
    assert skips.name.endswith(HALF)


def test_every_arm_of_the_second_model_skips_within_its_own_trained_length() -> None:
    scale = FAR_GEMMA.parts[0].scales["default"]
    recipes = [gemma.EXPERIMENT.recipe_of(scale, arm, 0) for arm in gemma.EXPERIMENT.arms[1:]]
    assert [recipe.model for recipe in recipes if recipe] == ["gemma3-270m"] * 3
    assert {recipe.positions.target_length for recipe in recipes if recipe and recipe.positions} == {32768}
    assert [recipe.length * recipe.batch.size for recipe in recipes if recipe] == [2048] * 3


def recipes_of(experiment: Experiment, study: Study) -> dict[str, dict[str, Any]]:
    """The recipe of each trained arm of seed 0."""
    scale = study.parts[0].scales["default"]
    found = {arm.name: experiment.recipe_of(scale, arm, 0) for arm in experiment.trained_arms}
    return {name: recipe.to_dict() for name, recipe in found.items() if recipe is not None}


@pytest.mark.parametrize(
    ("experiment", "study", "trained", "training"),
    [
        (source_code.EXPERIMENT, FAR_CODE, repeats.EXPERIMENT, FAR_REPEATS),
        (reach.EXPERIMENT, FAR_REACH, repeats.EXPERIMENT, FAR_REPEATS),
        (ntk.EXPERIMENT, FAR_NTK, repeats.EXPERIMENT, FAR_REPEATS),
        (repeats.EXPERIMENT, FAR_REPEATS, windows.EXPERIMENT, FAR_WINDOWS),
        (parts.EXPERIMENT, FAR_PARTS, repeats.EXPERIMENT, FAR_REPEATS),
        (gemma_repeats.EXPERIMENT, FAR_GEMMA_REPEATS, gemma.EXPERIMENT, FAR_GEMMA),
    ],
)
def test_a_later_study_trains_what_an_earlier_one_has(
    experiment: Experiment, study: Study, trained: Experiment, training: Study
) -> None:
    recipes, earlier = recipes_of(experiment, study), recipes_of(trained, training)
    shared = set(recipes) & set(earlier)
    assert shared >= {CONTROL}
    assert {name: recipes[name] for name in shared} == {name: earlier[name] for name in shared}


def test_arms_on_code_differ_in_their_text_alone() -> None:
    recipes = recipes_of(source_code.EXPERIMENT, FAR_CODE)
    for arm in source_code.ON_BOOKS:
        books, code = recipes[arm.name], recipes[f"on code: {arm.name}"]
        assert (books["data"]["corpus"], code["data"]["corpus"]) == ("books", "code")
        assert code == {**books, "data": {**books["data"], "corpus": "code"}}


def test_repeats_come_from_near_and_far_in_windows_that_all_skip() -> None:
    recipe = recipes_of(repeats.EXPERIMENT, FAR_REPEATS)[REPEATS.name]
    assert recipe["view_options"] == {"share": 1.0, "passage": 128, "source": "anywhere", "place": "anywhere"}
    assert "share" not in recipe["positions"]["options"]
    # What is measured is what ships.
    assert {**read_recipe("smollm2-far").to_dict(), "precision": recipe["precision"]} == recipe
    extended = recipes_of(ntk.EXPERIMENT, FAR_NTK)[EXTENDED_REPEATS.name]
    assert extended["positions"]["target_length"] == 2 * recipe["positions"]["target_length"] == 2 * 8192
    assert {name for name in recipe if recipe[name] != extended[name]} == {"positions", "extend"}


def test_every_claim_on_repeats_has_its_differences() -> None:
    """A claim about a pair that the experiment does not compare would never get a verdict."""
    for module in (repeats, source_code, gemma_repeats):
        experiment = module.EXPERIMENT
        found = results(0.2, 0.004, 0.0)
        found.config["measures"]["eval"]["depths"] = [0.0, 50.0]
        compared = {(arm.name, experiment.reference) for arm in experiment.arms} | set(experiment.contrasts)
        found.rows = [
            replace(row, arm=arm, reference=reference, metric=metric)
            for row in found.rows
            for arm, reference in compared
            for metric in {row.metric, "gold_probability" if row.metric == "accuracy" else row.metric}
        ]
        middle = [replace(row, depth=50.0) for row in found.rows if row.length == 7000]
        table = module.verdicts(replace(found, rows=found.rows + middle))
        column = table.columns.index("verdict")
        assert len(table.rows) >= 4
        assert {row[column] for row in table.rows} == {"reproduced"}


def test_the_parts_differ_from_the_whole_in_one_thing_each() -> None:
    recipes = recipes_of(parts.EXPERIMENT, FAR_PARTS)
    whole, alone, fewer = (recipes[arm.name] for arm in (REPEATS, parts.NO_SKIP, parts.FEWER))
    assert alone == {**whole, "objective": {**whole["objective"], "ce_on": "long"}}
    assert (fewer["positions"]["options"]["share"], fewer["view_options"]["share"]) == (0.5, 1.0)


def test_full_windows_hold_as_many_tokens_as_the_others() -> None:
    recipes = recipes_of(full_windows.EXPERIMENT, FAR_FULL_WINDOWS)
    others = recipes_of(steps.EXPERIMENT, FAR_STEPS)
    full = recipes.pop(FULL.name)
    assert recipes == {name: others[name] for name in (CONTROL, HALF)}
    assert full["length"] == 8192
    for recipe in (full, *recipes.values()):
        assert recipe["steps"] * recipe["length"] == 180 * 2048
    # One reading of each window, with no positions but its own.
    assert full["objective"] == recipes[CONTROL]["objective"]
    assert full["positions"] is None


def test_rotated_windows_read_the_tokens_of_the_others_or_half_of_them() -> None:
    recipes = recipes_of(cyclic.EXPERIMENT, FAR_CYCLIC)
    rotated, fewer = recipes.pop(CYCLIC), recipes.pop(FEWER.name)
    assert recipes == recipes_of(windows.EXPERIMENT, FAR_WINDOWS)
    assert (rotated["views"], rotated["steps"], rotated["length"]) == ("cyclic", 60, 2048)
    assert fewer == {**rotated, "steps": 30}
