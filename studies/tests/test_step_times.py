"""What a step takes is measured once, in turns, and does not rise with what else the machine does."""

import pytest

from lengthwise.training.recipe import Recipe
from lengthwise_studies import step_times
from lengthwise_studies.experiments import Experiment, Scale
from lengthwise_studies.step_times import ROUNDS, STEPS, measure_step_times


@pytest.fixture
def recipe(small_experiment: tuple[Experiment, Scale]) -> Recipe:
    experiment, scale = small_experiment
    return experiment.recipe_of(scale, experiment.arms[1], 0)


@pytest.mark.parametrize(("steps", "rounds"), [(4, 1), (2 * STEPS, 2), (100 * STEPS, ROUNDS)])
def test_a_training_of_few_steps_is_timed_in_fewer_rounds(recipe, tmp_path, monkeypatch, steps, rounds):
    turns: list[Recipe] = []
    monkeypatch.setattr(step_times, "_step_times", lambda one: [float(turns.append(one) is None)])
    short = recipe.model_copy(update={"steps": steps})
    assert measure_step_times({"one": short}, tmp_path / "times.json") == {"one": 1.0}
    assert len(turns) == rounds


def test_a_disturbed_round_changes_nothing_and_the_times_are_kept(recipe, tmp_path, monkeypatch):
    turns: list[int] = []
    seconds = {1: 0.5, 2: 0.25}

    def timed(one: Recipe) -> list[float]:
        turns.append(one.seed)
        disturbed = len(turns) in (2, 3, 4)
        return [seconds[one.seed] * (10 if disturbed else 1)] * 2

    monkeypatch.setattr(step_times, "_step_times", timed)
    recipe = recipe.model_copy(update={"steps": ROUNDS * STEPS})
    recipes = {"slow": recipe.model_copy(update={"seed": 1}), "fast": recipe.model_copy(update={"seed": 2})}
    kept = tmp_path / "run" / "times.json"
    assert measure_step_times(recipes, kept) == {"slow": 0.5, "fast": 0.25}
    assert turns == [1, 2] * ROUNDS
    monkeypatch.setattr(step_times, "_step_times", lambda _: pytest.fail("measured again"))
    assert measure_step_times(recipes, kept) == {"slow": 0.5, "fast": 0.25}


def test_every_step_of_a_turn_but_the_first_is_counted(recipe: Recipe) -> None:
    seconds = step_times._step_times(recipe.model_copy(update={"steps": STEPS}))
    assert len(seconds) == STEPS - 1
    assert min(seconds) > 0
