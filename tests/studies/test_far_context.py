from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from lengthwise.alignment.weightings import WEIGHTINGS
from lengthwise.results import Results, Row
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.far import (
    beyond_questions,
    full_windows,
    gemma,
    gemma_repeats,
    gemma_tracking,
    long_texts,
    longer_windows,
    more_steps,
    repeats,
    repeats_in_code,
    repeats_on_tracking,
    repeats_with_ntk,
    repeats_with_weightings,
    repeats_with_yarn,
    rotated_windows,
    skips_or_repeats,
    skips_with_yarn,
)
from lengthwise.studies.far.beyond_questions import FAR_REACH
from lengthwise.studies.far.depth_pictures import MOST_ARMS, depth_pictures
from lengthwise.studies.far.full_windows import FAR_FULL_WINDOWS, FULL
from lengthwise.studies.far.gemma import FAR_GEMMA
from lengthwise.studies.far.gemma_repeats import FAR_GEMMA_REPEATS
from lengthwise.studies.far.gemma_tracking import FAR_GEMMA_TRACKING
from lengthwise.studies.far.long_texts import FAR_LONG_TEXTS
from lengthwise.studies.far.longer_windows import FAR_WINDOWS
from lengthwise.studies.far.more_steps import FAR_STEPS
from lengthwise.studies.far.repeats import FAR_REPEATS, REPEATS
from lengthwise.studies.far.repeats_in_code import FAR_CODE
from lengthwise.studies.far.repeats_on_tracking import FAR_TRACKING
from lengthwise.studies.far.repeats_with_ntk import EXTENDED_REPEATS, FAR_NTK
from lengthwise.studies.far.repeats_with_weightings import FAR_WEIGHTINGS
from lengthwise.studies.far.repeats_with_yarn import FAR_YARN_4
from lengthwise.studies.far.rotated_windows import FAR_CYCLIC, FEWER
from lengthwise.studies.far.screen import CONTROL, CYCLIC, EVERY, HALF
from lengthwise.studies.far.skips_or_repeats import FAR_PARTS
from lengthwise.studies.far.skips_with_yarn import FAR_EXTENSION
from lengthwise.studies.far.study_page import arm_and_seed, far_tables, verdicts_table
from lengthwise.studies.far.two_forms import EXPERIMENT, FAR_CONTEXT, FORMS, claims_of
from lengthwise.studies.skeleton import Study
from lengthwise.training import read_recipe

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


def test_every_arm_of_the_longer_windows_reads_them() -> None:
    scale = FAR_WINDOWS.parts[0].scales["default"]
    recipes = [
        longer_windows.EXPERIMENT.recipe_of(scale, arm, 0) for arm in longer_windows.EXPERIMENT.arms[1:]
    ]
    assert [recipe.length * recipe.batch.size for recipe in recipes if recipe] == [2048] * 2
    assert {recipe.positions.target_length for recipe in recipes if recipe and recipe.positions} == {8192}
    assert scale.seeds == 3


def test_more_steps_on_the_same_windows_and_questions() -> None:
    scale, windows = (study.parts[0].scales["default"] for study in (FAR_STEPS, FAR_WINDOWS))
    assert scale.measures == windows.measures
    recipes = {
        arm.name: more_steps.EXPERIMENT.recipe_of(scale, arm, 0) for arm in more_steps.EXPERIMENT.arms[1:]
    }
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


@pytest.mark.parametrize(
    ("experiment", "study", "factor", "form"),
    [
        (skips_with_yarn.EXPERIMENT, FAR_EXTENSION, 2, HALF),
        (repeats_with_yarn.EXPERIMENT, FAR_YARN_4, 4, REPEATS.name),
    ],
)
def test_every_arm_beyond_the_trained_length_is_extended_and_skips_reach_the_extended_length(
    experiment: Experiment, study: Study, factor: int, form: str
) -> None:
    scale = study.parts[0].scales["default"]
    untrained, *trained = experiment.arms
    assert (untrained.changes, untrained.method, untrained.factor) == (None, "yarn", factor)
    for arm in trained:
        recipe = experiment.recipe_of(scale, arm, 0)
        assert recipe is not None
        assert recipe.extend is not None
        assert recipe.positions is not None
        assert (recipe.extend.method, recipe.extend.factor) == ("yarn", factor)
        assert recipe.length * recipe.batch.size == 2048
        assert recipe.positions.target_length == factor * 8192
    control, with_skips = trained
    assert control.name == experiment.reference
    assert "objective.ce_on=long" in (control.changes or ())
    assert with_skips.name == f"YaRN x{factor}, {form}"
    # Within the trained length and beyond it, and nothing beyond the extended one.
    within, beyond = scale.measures["eval"]["lengths"]
    losses = scale.measures["perplexity"]["lengths"]
    assert within < 8192 < beyond < factor * 8192
    assert max(losses) <= factor * 8192


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
        (repeats_in_code.EXPERIMENT, FAR_CODE, repeats.EXPERIMENT, FAR_REPEATS),
        (beyond_questions.EXPERIMENT, FAR_REACH, skips_or_repeats.EXPERIMENT, FAR_PARTS),
        (repeats_with_ntk.EXPERIMENT, FAR_NTK, repeats.EXPERIMENT, FAR_REPEATS),
        (repeats.EXPERIMENT, FAR_REPEATS, longer_windows.EXPERIMENT, FAR_WINDOWS),
        (skips_or_repeats.EXPERIMENT, FAR_PARTS, repeats.EXPERIMENT, FAR_REPEATS),
        (gemma_repeats.EXPERIMENT, FAR_GEMMA_REPEATS, gemma.EXPERIMENT, FAR_GEMMA),
        (repeats_on_tracking.EXPERIMENT, FAR_TRACKING, repeats.EXPERIMENT, FAR_REPEATS),
        (gemma_tracking.EXPERIMENT, FAR_GEMMA_TRACKING, gemma.EXPERIMENT, FAR_GEMMA),
        (long_texts.EXPERIMENT, FAR_LONG_TEXTS, repeats.EXPERIMENT, FAR_REPEATS),
        (long_texts.EXPERIMENT, FAR_LONG_TEXTS, beyond_questions.EXPERIMENT, FAR_REACH),
        (repeats_with_weightings.EXPERIMENT, FAR_WEIGHTINGS, repeats.EXPERIMENT, FAR_REPEATS),
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
    recipes = recipes_of(repeats_in_code.EXPERIMENT, FAR_CODE)
    for arm in repeats_in_code.ON_BOOKS:
        books, code = recipes[arm.name], recipes[f"on code: {arm.name}"]
        assert (books["data"]["corpus"], code["data"]["corpus"]) == ("books", "code")
        assert code == {**books, "data": {**books["data"], "corpus": "code"}}


def test_repeats_come_from_near_and_far_in_windows_that_all_skip() -> None:
    recipe = recipes_of(repeats.EXPERIMENT, FAR_REPEATS)[REPEATS.name]
    assert recipe["view_options"] == {"share": 1.0, "passage": 128, "source": "anywhere", "place": "anywhere"}
    assert "share" not in recipe["positions"]["options"]
    # What is measured is what ships.
    assert {**read_recipe("smollm2-far").to_dict(), "precision": recipe["precision"]} == recipe
    extended = recipes_of(repeats_with_ntk.EXPERIMENT, FAR_NTK)[EXTENDED_REPEATS.name]
    assert extended["positions"]["target_length"] == 2 * recipe["positions"]["target_length"] == 2 * 8192
    assert {name for name in recipe if recipe[name] != extended[name]} == {"positions", "extend"}


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


def test_tracking_is_asked_of_the_models_of_the_repeats_on_no_needle() -> None:
    for study, other in ((FAR_TRACKING, FAR_REPEATS), (FAR_GEMMA_TRACKING, FAR_GEMMA)):
        scale, earlier = (each.parts[0].scales["default"] for each in (study, other))
        asked, needles = scale.measures["eval"], earlier.measures["eval"]
        assert asked["tasks"] == ["tracking_one_move", "tracking_two_moves"]
        assert (asked["lengths"], asked["depths"]) == (needles["lengths"], needles["depths"])
        assert asked["samples"] == 24
        assert scale.measures["perplexity"] == earlier.measures["perplexity"]


def test_one_part_reads_the_same_windows_without_a_skip_and_one_skips_and_repeats_less() -> None:
    recipes = recipes_of(skips_or_repeats.EXPERIMENT, FAR_PARTS)
    whole, alone, fewer = (
        recipes[arm.name] for arm in (REPEATS, skips_or_repeats.NO_SKIP, skips_or_repeats.FEWER)
    )
    assert alone == {**whole, "objective": {**whole["objective"], "ce_on": "long"}}
    assert (fewer["positions"]["options"]["share"], fewer["view_options"]["share"]) == (0.5, 1.0)
    # Shorter passages than the whole's: the view's default.
    assert ("passage" in fewer["view_options"], whole["view_options"]["passage"]) == (False, 128)


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
    arms, differences, over_seeds = far_tables(found, CONTROL)
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


def test_weightings_change_the_weights_alone_and_each_is_compared_with_none() -> None:
    recipes = recipes_of(repeats_with_weightings.EXPERIMENT, FAR_WEIGHTINGS)
    plain = recipes[REPEATS.name]
    weighted = []
    for arm in repeats_with_weightings.WEIGHTED:
        objective = dict(recipes[arm.name]["objective"])
        weighted.append(objective.pop("weighting"))
        assert {**recipes[arm.name], "objective": objective} == plain
        assert (arm.name, REPEATS.name) in repeats_with_weightings.EXPERIMENT.contrasts
    # Weights by position look at no loss.
    assert weighted == [name for name in WEIGHTINGS if name not in ("none", "position")]


def test_full_windows_hold_as_many_tokens_as_the_others() -> None:
    recipes = recipes_of(full_windows.EXPERIMENT, FAR_FULL_WINDOWS)
    others = recipes_of(more_steps.EXPERIMENT, FAR_STEPS)
    full = recipes.pop(FULL.name)
    assert recipes == {name: others[name] for name in (CONTROL, HALF)}
    assert full["length"] == 8192
    for recipe in (full, *recipes.values()):
        assert recipe["steps"] * recipe["length"] == 180 * 2048
    # One reading of each window, with no positions but its own.
    assert full["objective"] == recipes[CONTROL]["objective"]
    assert full["positions"] is None


def test_rotated_windows_read_the_tokens_of_the_others_or_half_of_them() -> None:
    recipes = recipes_of(rotated_windows.EXPERIMENT, FAR_CYCLIC)
    rotated, fewer = recipes.pop(CYCLIC), recipes.pop(FEWER.name)
    assert recipes == recipes_of(longer_windows.EXPERIMENT, FAR_WINDOWS)
    assert (rotated["views"], rotated["steps"], rotated["length"]) == ("cyclic", 60, 2048)
    assert fewer == {**rotated, "steps": 30}


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
