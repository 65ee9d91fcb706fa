"""What a study has trained or measured is not trained or measured again by another, nor by the same one later."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.measure import Perplexity
from lengthwise.results import read_results
from lengthwise.subjects import load
from lengthwise.testing import save_tiny_model, tiny_text
from lengthwise.text import Corpus
from lengthwise.training.recipe import Recipe
from lengthwise_studies import store
from lengthwise_studies.experiments import Arm, Experiment, Scale
from lengthwise_studies.store import measured, recipe_key, store_folder

Small = tuple[Experiment, Scale]


@pytest.fixture
def short(small_experiment: Small) -> Small:
    """The small experiment's trained arms with one seed and two steps, and an empty store."""
    experiment, scale = small_experiment
    return replace(experiment, arms=experiment.arms[1:]), replace(scale, seeds=1, steps=2)


def files() -> dict[Path, int]:
    """Logs and weights of the store, with the times of their last change."""
    found = [*store_folder().rglob("*.jsonl"), *store_folder().rglob("*.safetensors")]
    return {path: path.stat().st_mtime_ns for path in found}


def test_another_study_finds_the_arms_under_names_of_its_own(short: Small, tmp_path: Path) -> None:
    experiment, scale = short
    before = experiment.run(tmp_path / "one", scale)
    kept = files()
    first, second = experiment.arms
    new = Arm(name="twice", changes=("objective.alpha=2", "objective.divergence=jeffreys"))
    another = replace(
        experiment, kind="another", arms=(replace(first, name="plain"), second, new), reference=None
    )
    after = another.run(tmp_path / "two", scale)
    assert {path: time for path, time in files().items() if path in kept} == kept
    assert len([*store_folder().glob("*/train")]) == 3
    for old, renamed in (("cross entropy", "plain"), ("aligned", "aligned")):
        assert [row.value for row in before.rows if (row.arm, row.reference) == (old, None)] == [
            row.value for row in after.rows if (row.arm, row.reference) == (renamed, None)
        ]


@pytest.mark.parametrize("change", ["measure", "text", "model"])
def test_what_differs_is_done_again(short: Small, tmp_path: Path, change: str) -> None:
    experiment, scale = short
    experiment = replace(experiment, arms=experiment.arms[:1], reference=None)
    before = experiment.run(tmp_path / "one", scale)
    other = scale
    if change == "measure":
        # Over the settings of the scale.
        arm = replace(experiment.arms[0], measures={"perplexity": {"windows": 3}})
        experiment = replace(experiment, arms=(arm,))
    elif change == "text":
        (tmp_path / "unseen").mkdir()
        (tmp_path / "unseen" / "one.txt").write_text(tiny_text(2000, seed=99))
        other = replace(scale, text=str(tmp_path / "unseen"), split="all")
    else:
        # Another model in a folder of another name, with the same recipe.
        other = replace(scale, model=str(save_tiny_model(tmp_path / "model", seed=5)))
    after = experiment.run(tmp_path / "two", other)
    assert [row.value for row in after.rows] != [row.value for row in before.rows]
    assert len([*store_folder().glob("*/train")]) == (2 if change == "model" else 1)


def test_a_setting_that_is_added_later_changes_no_key(
    short: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its default: what was trained and measured before it existed is found."""

    class LaterRecipe(Recipe):
        later: int = 3

    class LaterPerplexity(Perplexity):
        later: int = 3

    experiment, scale = short
    recipe = experiment.recipe_of(scale, experiment.arms[0], 0)
    assert recipe is not None
    plain, key = recipe.to_dict(defaults=False), recipe_key(recipe)
    assert recipe_key(LaterRecipe(**plain)) == key != recipe_key(LaterRecipe(**plain, later=4))
    # Nor do names and what decides nothing about the weights.
    copy = shutil.copytree(scale.model, tmp_path / "elsewhere")
    assert recipe_key(recipe.model_copy(update={"model": str(copy), "save_at": (1,), "save_every": 7})) == key
    assert key not in [recipe_key(recipe.model_copy(update=update)) for update in ({"seed": 1}, {"steps": 3})]
    before = experiment.run(tmp_path / "one", scale)
    kept = files()
    monkeypatch.setitem(store.MEASURES, "perplexity", LaterPerplexity)
    assert experiment.run(tmp_path / "two", scale).rows == before.rows
    assert files() == kept


def test_what_is_of_an_older_version_is_done_again_and_nothing_else(
    short: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, scale = short
    scale = replace(scale, measures={"perplexity": {"lengths": [32]}, "misalignment": {"lengths": [32]}})
    before = experiment.run(tmp_path / "first", scale)
    kept, folders = files(), {path.parent for path in store_folder().glob("*/train")}
    monkeypatch.setitem(store.VERSIONS, "ppl", 2)
    assert experiment.run(tmp_path / "measured", scale).rows == before.rows
    new = files().keys() - kept.keys()
    assert {path.name.partition("-")[0] for path in new} == {"perplexity"}
    assert {path.parent for path in new} == folders
    monkeypatch.setitem(store.VERSIONS, "train", 2)
    kept = files()
    assert experiment.run(tmp_path / "trained", scale).rows == before.rows
    assert len([*store_folder().glob("*/train")]) == 2 * len(folders)
    assert {path: time for path, time in files().items() if path in kept} == kept


def test_measurements_of_one_model_do_not_wait_for_each_other(tmp_path: Path) -> None:
    model = load(str(save_tiny_model(tmp_path / "model")))
    text = Corpus.of("t", {"one": tiny_text(2000)}, split="all")
    measures = {"perplexity": {"lengths": [32], "windows": 1}}
    folder = store_folder() / "an arm"

    def locks(factor: int) -> set[Path]:
        before = {*folder.glob("*.lock")}
        found = measured(model, text, measures, folder, factor=factor)[0]["perplexity"]
        assert found.rows
        return {*folder.glob("*.lock")} - before

    [one] = locks(1)
    assert locks(1) == set()
    [other] = locks(2)
    assert other != one


def test_a_killed_training_continues(short: Small, tmp_path: Path) -> None:
    experiment, scale = short
    experiment, scale = replace(experiment, arms=experiment.arms[:1], reference=None), replace(scale, steps=4)
    whole = experiment.run(tmp_path / "whole", scale)
    (results,) = store_folder().glob("*/train/results.json")
    shutil.rmtree(results.parent / "checkpoints" / "checkpoint-4")
    for path in (results, *store_folder().glob("*/*.jsonl")):
        path.unlink()
    again = experiment.run(tmp_path / "again", scale)
    assert again.rows == whole.rows
    assert read_results(results).provenance["resumed_at_step"] == 2
