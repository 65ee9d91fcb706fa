"""Arms and seeds in several processes of this machine give the rows of a sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import Interrupted, UsageError
from lengthwise.studies import jobs
from lengthwise.studies.experiments import FAN_OUT, Arm, Experiment, Scale
from lengthwise.studies.jobs import fill_in_jobs, in_jobs
from lengthwise.testing import save_tiny_model, tiny_text

Small = tuple[Experiment, Scale]


@pytest.fixture
def small(tmp_path: Path, recipe_file: Callable[[Path], Path]) -> Small:
    text = tmp_path / "text"
    text.mkdir()
    for index in range(4):
        (text / f"{index}.txt").write_text(tiny_text(600, seed=index))
    experiment = Experiment(
        kind="small",
        recipe=str(recipe_file(text)),
        reference="plain",
        seeded=True,
        arms=(
            Arm(name="before"),
            Arm(name="plain", changes=("objective.alpha=0",)),
            Arm(name="sce", changes=("objective.alpha=0.1",)),
        ),
    )
    scale = Scale(
        model=str(save_tiny_model(tmp_path / "model")),
        text=str(text),
        split="all",
        seeds=2,
        measures={"perplexity": {"lengths": [16], "segments": 4}},
    )
    return experiment, scale


@pytest.fixture
def recipe_file() -> Callable[[Path], Path]:
    def write(text: Path) -> Path:
        path = text.with_name("small.yaml")
        path.write_text(
            f"model: tiny\ndata: {{corpus: '{text}', split: all}}\nlength: 16\nsteps: 2\n"
            "batch: {size: 2}\noptimizer: {learning_rate: 0.001}\n"
        )
        return path

    return write


@pytest.mark.slow
def test_two_jobs_give_the_rows_of_a_sequence(small: Small, tmp_path: Path) -> None:
    experiment, scale = replace(small[0], arms=small[0].arms[1:]), replace(small[1], seeds=1)
    alone = experiment.run(tmp_path / "alone", scale)
    with in_jobs(2):
        together = experiment.run(tmp_path / "together", scale)
    assert FAN_OUT.get() is None
    assert together.rows == alone.rows
    assert {row.arm for row in together.rows} == {"plain", "sce"}


def test_every_arm_and_seed_is_one_task_with_its_share_of_the_cores(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def instead(work: Any, items: Any, *, processes: int) -> Any:
        asked.append((work.keywords, [(one.arms[0].name, one.only_seed) for one in items], processes))
        yield from ()

    monkeypatch.setattr(jobs, "side_by_side", instead)
    monkeypatch.setattr(jobs, "cores", lambda: 7)
    for number in (2, 9):
        fill_in_jobs(number, *small, tmp_path / "parts")
    tasks = [("before", None), *((arm, seed) for arm in ("plain", "sce") for seed in (0, 1))]
    shared = {"scale": small[1], "parts": tmp_path / "parts"}
    assert asked == [({**shared, "threads": 3}, tasks, 2), ({**shared, "threads": 1}, tasks, 5)]


def test_one_job_leaves_all_to_the_sequence(small: Small, tmp_path: Path) -> None:
    fill_in_jobs(1, *small, tmp_path / "parts")
    assert not (tmp_path / "parts").exists()


def test_ctrl_c_tells_what_is_finished(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def two_then_ctrl_c(work: Any, items: Any, *, processes: int) -> Any:
        yield from ((item, None) for item in items[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "side_by_side", two_then_ctrl_c)
    with pytest.raises(Interrupted, match="after 2 of 5 arms and seeds"):
        fill_in_jobs(2, *small, tmp_path / "parts")


def test_what_cannot_run_at_once_is_refused(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, scale = small
    with pytest.raises(UsageError, match="equal times"):
        fill_in_jobs(2, replace(experiment, equal_time=True), scale, tmp_path / "parts")
    enter: Callable[[int], Any] = partial(lambda number: in_jobs(number).__enter__())
    with pytest.raises(UsageError, match="--jobs 0"):
        enter(0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match="one GPU"):
        enter(2)
