"""Arms and seeds in several processes of this machine give the rows of a sequence."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from lengthwise.errors import Interrupted, UsageError
from lengthwise_studies import jobs, store
from lengthwise_studies.experiments import FAN_OUT, Experiment, Scale
from lengthwise_studies.jobs import fill_in_jobs, in_jobs

Small = tuple[Experiment, Scale]


def test_two_jobs_give_the_rows_of_a_sequence(
    small_experiment: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a job gets and does goes through pickle here; test_side_by_side.py has the processes."""

    def in_this_process(work: Any, items: Any, *, processes: int) -> Any:
        for item in pickle.loads(pickle.dumps(items)):
            yield item, pickle.loads(pickle.dumps(work))(item)

    monkeypatch.setattr(jobs, "side_by_side", in_this_process)
    monkeypatch.setattr(jobs, "cores", lambda: 2)
    experiment, scale = small_experiment
    experiment, scale = replace(experiment, arms=experiment.arms[1:]), replace(scale, seeds=1, steps=2)
    alone = experiment.run(tmp_path / "alone", scale)
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path / "other")
    with in_jobs(2):
        together = experiment.run(tmp_path / "together", scale)
    assert FAN_OUT.get() is None
    assert together.rows == alone.rows
    assert {row.arm for row in together.rows} == {arm.name for arm in experiment.arms}


def test_every_arm_and_seed_is_one_task_with_its_share_of_the_cores(
    small_experiment: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    def instead(work: Any, items: Any, *, processes: int) -> Any:
        asked.append((work.keywords, [(one.arms[0].name, one.only_seed) for one in items], processes))
        yield from ()

    monkeypatch.setattr(jobs, "side_by_side", instead)
    monkeypatch.setattr(jobs, "cores", lambda: 7)
    for number in (2, 9):
        fill_in_jobs(number, *small_experiment)
    start, *trained = [arm.name for arm in small_experiment[0].arms]
    tasks = [(start, None), *((arm, seed) for arm in trained for seed in (0, 1))]
    shared = {"scale": small_experiment[1]}
    assert asked == [({**shared, "threads": 3}, tasks, 2), ({**shared, "threads": 1}, tasks, 5)]


def test_one_job_leaves_all_to_the_sequence(small_experiment: Small, arms: Path) -> None:
    fill_in_jobs(1, *small_experiment)
    assert not arms.exists()


def test_ctrl_c_tells_what_is_finished(
    small_experiment: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def two_then_ctrl_c(work: Any, items: Any, *, processes: int) -> Any:
        yield from ((item, None) for item in items[:2])
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs, "side_by_side", two_then_ctrl_c)
    with pytest.raises(Interrupted, match="after 2 of 5 arms and seeds"):
        fill_in_jobs(2, *small_experiment)


def test_what_cannot_run_at_once_is_refused(
    small_experiment: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, scale = small_experiment
    with pytest.raises(UsageError, match="equal times"):
        fill_in_jobs(2, replace(experiment, equal_time=True), scale)
    with pytest.raises(UsageError, match="--jobs 0"), in_jobs(0):
        pass
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(UsageError, match="one GPU"), in_jobs(2):
        pass
