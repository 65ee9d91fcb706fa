"""What the arms of the studies of far context train on, and what they share."""

from __future__ import annotations

from typing import Any

import pytest

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
    repeats_with_yarn,
    rotated_windows,
    skips_or_repeats,
    skips_with_yarn,
)
from lengthwise.studies.far.beyond_questions import FAR_REACH
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
from lengthwise.studies.far.repeats_with_yarn import FAR_YARN_4
from lengthwise.studies.far.rotated_windows import FAR_CYCLIC, FEWER
from lengthwise.studies.far.screen import CONTROL, CYCLIC, EVERY, HALF
from lengthwise.studies.far.skips_or_repeats import FAR_PARTS
from lengthwise.studies.far.skips_with_yarn import FAR_EXTENSION
from lengthwise.studies.skeleton import Study
from lengthwise.training import read_recipe


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
