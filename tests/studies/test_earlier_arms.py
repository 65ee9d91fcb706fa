"""Arms of an earlier run are taken over where nothing that decides their weights or samples differs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.errors import UsageError
from lengthwise.results import Results
from lengthwise.settings import read_yaml
from lengthwise.studies.earlier_arms import EarlierArm, arms_from, take_arms
from lengthwise.studies.experiments import Arm, Experiment, Scale
from lengthwise.studies.paper.table2 import STUDY
from lengthwise.studies.study_table import produce
from lengthwise.testing import save_tiny_model, tiny_text

Small = tuple[Experiment, Scale]


@pytest.fixture(scope="module")
def finished(
    small_experiment: Small, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Experiment, Scale, Path, Results]:
    """A run of the small experiment's trained arms with one seed."""
    experiment, scale = small_experiment
    experiment, scale = replace(experiment, arms=experiment.arms[1:]), replace(scale, seeds=1, steps=2)
    out = tmp_path_factory.mktemp("earlier") / "run"
    return experiment, scale, out, experiment.run(out, scale)


def _more(experiment: Experiment) -> Experiment:
    """Another experiment: one arm has another name, and there is a new one."""
    first, second = experiment.arms
    new = Arm(name="twice", changes=("objective.alpha=2", "objective.divergence=jeffreys"))
    return replace(
        experiment, kind="another", arms=(replace(first, name="plain"), second, new), reference=None
    )


@pytest.mark.slow
def test_what_is_taken_over_gives_the_rows_of_a_run_of_its_own(
    finished: tuple[Experiment, Scale, Path, Results], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment, scale, earlier, _ = finished
    another = _more(experiment)
    alone = another.run(tmp_path / "alone", scale)
    capfd.readouterr()
    with arms_from([earlier]):
        taken = another.run(tmp_path / "taken", scale)
    assert capfd.readouterr().err.count("training: 100%") == 1, "only the new arm is trained"
    assert taken.rows == alone.rows
    assert taken.provenance["taken over"] == {
        "seed-0/plain": str(earlier / "parts/seed-0/cross-entropy"),
        "seed-0/aligned": str(earlier / "parts/seed-0/aligned"),
    }
    assert "taken over" not in alone.provenance
    # The settings are those of the new run, so it can be resumed.
    folder = Path("parts/seed-0/plain/train/config.yaml")
    assert read_yaml(tmp_path / "taken" / folder) == read_yaml(tmp_path / "alone" / folder)


@pytest.mark.slow
def test_an_extension_with_weights_of_its_own_is_taken_over_with_every_seed(
    small_experiment: Small, tmp_path: Path
) -> None:
    experiment, scale = small_experiment
    experiment = replace(experiment, arms=experiment.arms[1:2], reference=None)
    clex = ("extend.method=clex", "extend.factor=4")
    scale = replace(scale, seeds=2, steps=1, changes=(*scale.changes, *clex))
    rows = experiment.run(tmp_path / "earlier", scale).rows
    with arms_from([tmp_path / "earlier"]):
        taken = experiment.run(tmp_path / "taken", scale)
    assert len(taken.provenance["taken over"]) == 2
    assert taken.rows == rows


@pytest.mark.slow
@pytest.mark.parametrize("change", ["measure", "text"])
def test_what_is_measured_otherwise_is_measured_anew(
    finished: tuple[Experiment, Scale, Path, Results], tmp_path: Path, change: str
) -> None:
    experiment, scale, earlier, before = finished
    if change == "measure":
        (name, settings), *rest = scale.measures.items()
        assert name == "perplexity"
        more = {**settings, "segments": settings["segments"] + 1}
        other = replace(scale, measures={name: more, **dict(rest)})
    else:
        (tmp_path / "unseen").mkdir()
        (tmp_path / "unseen" / "one.txt").write_text(tiny_text(2000, seed=99))
        other = replace(scale, text=str(tmp_path / "unseen"), split="all")
    alone = experiment.run(tmp_path / "alone", other)
    with arms_from([earlier]):
        taken = experiment.run(tmp_path / "taken", other)
    assert len(taken.provenance["taken over"]) == 2
    assert taken.rows == alone.rows != before.rows


@pytest.mark.slow
@pytest.mark.parametrize("change", ["nothing", "steps", "recipe", "begun", "weights", "training text"])
def test_another_training_is_not_taken_over(
    finished: tuple[Experiment, Scale, Path, Results],
    tmp_path: Path,
    change: str,
    request: pytest.FixtureRequest,
) -> None:
    experiment, scale, earlier, _ = finished
    if change == "steps":
        scale = replace(scale, steps=3)
    elif change == "recipe":
        scale = replace(scale, changes=(*scale.changes, "optimizer.learning_rate=0.02"))
    elif change in ("weights", "training text"):
        place = Path(scale.model if change == "weights" else scale.text)
        kept = shutil.copytree(place, tmp_path / "kept")
        request.addfinalizer(lambda: shutil.copytree(kept, place, dirs_exist_ok=True))
        if change == "weights":
            save_tiny_model(place, seed=1)
        else:
            (place / "0.txt").write_text(tiny_text(600, seed=99))
    elif change == "begun":
        for arm in experiment.arms:
            (tmp_path / "new/parts/seed-0" / arm.slug).mkdir(parents=True)
    parts = tmp_path / "new/parts"
    wanted = [
        (parts / "seed-0" / arm.slug, arm, recipe)
        for arm in experiment.arms
        if (recipe := experiment.recipe_of(scale, arm, 0)) is not None
    ]
    with arms_from([earlier]):
        taken = take_arms(wanted, read_yaml(earlier / "config.yaml"), parts)
    assert len(taken) == (2 if change == "nothing" else 0)


def test_checkpoints_that_were_kept_besides_do_not_matter(tmp_path: Path) -> None:
    plain = {"steps": 8, "seed": 0}
    kept = {**plain, "save_at": [2, 4]}
    fewer = {**plain, "save_at": [2]}

    def taken(theirs: dict[str, object], ours: dict[str, object]) -> bool:
        return EarlierArm(tmp_path, theirs, {}, {}).trained_as(ours)

    assert taken(kept, plain)
    assert taken(kept, fewer)
    assert not taken(plain, kept)
    assert not taken(fewer, kept)
    assert not taken(kept, {**kept, "seed": 1})


def test_what_has_no_finished_arms_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no finished training"), arms_from([tmp_path]):
        pass
    with pytest.raises(UsageError, match="figure2 has no arms"):
        produce("figure2", tmp_path / "out", arms_from=[tmp_path])


@pytest.mark.slow
def test_of_arms_that_train_for_equal_times_those_with_as_many_steps_are_taken_over(
    finished: tuple[Experiment, Scale, Path, Results], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, scale, earlier, _ = finished
    first, second = experiment.arms
    # Twice as fast as the reference, so it trains for twice as many steps.
    monkeypatch.setattr(
        "lengthwise.studies.experiments.measure_step_times", lambda *_: {first.name: 0.2, second.name: 0.1}
    )
    with arms_from([earlier]):
        found = replace(experiment, equal_time=True, reference=first.name).run(tmp_path / "new", scale)
    assert list(found.provenance["taken over"]) == [f"seed-0/{first.slug}"]
    assert read_yaml(tmp_path / "new/parts/seed-0" / second.slug / "train/config.yaml")["steps"] == 4


def test_arms_of_the_papers_tables_can_run_at_once() -> None:
    assert all(part.has_arms for part in STUDY.parts)
