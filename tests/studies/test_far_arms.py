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
    skips_or_repeats,
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
from lengthwise.studies.far.screen import CONTROL, HALF
from lengthwise.studies.far.skips_or_repeats import FAR_PARTS
from lengthwise.studies.skeleton import Study
from lengthwise.training import read_recipe


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
