"""Arms and seeds at once give the rows of a sequence, and refuse what cannot run so.

Jobs and Ray's tasks run in this process here: test_side_by_side.py has the processes, `make check-cluster` Ray.
"""

import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise_studies import fan_out, store
from lengthwise_studies.experiments import FAN_OUT, Experiment, Scale
from lengthwise_studies.fan_out import at_once, in_jobs, on_ray

Small = tuple[Experiment, Scale]


class RayError(Exception):
    """Ray's errors, each with the cause that an error of a task has."""

    def __init__(self, cause: BaseException | None = None) -> None:
        self.cause = cause


NAMES = ("RayTaskError", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError")
ERRORS = {name: type(name, (RayError,), {}) for name in NAMES}


class InThisProcess:
    """The part of Ray that `on_ray` uses, on a cluster of one machine; `failure` ends the second task."""

    exceptions = SimpleNamespace(RayError=RayError, **ERRORS)

    def __init__(self, failure: RayError | None = None) -> None:
        self.asked: list[dict[str, float]] = []
        self.failure = failure
        self.cancelled: list[Any] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0, "memory": 64e9}}]

    def remote(self, **_: Any) -> Any:
        def options(work: Any, **wanted: float) -> Any:
            self.asked.append(wanted)
            return SimpleNamespace(remote=work)

        return lambda work: SimpleNamespace(options=partial(options, work))

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, done: list[Any]) -> list[Any]:
        if self.failure is not None and done == ["start 2"]:
            raise self.failure
        return done

    def cancel(self, task: Any, *, force: bool) -> None:
        assert force
        self.cancelled.append(task)


def in_this_process(work: Any, items: Any, *, processes: int, what: str) -> None:
    """What a job gets and does goes through pickle."""
    for item in pickle.loads(pickle.dumps(items)):
        pickle.loads(pickle.dumps(work))(item)


@pytest.mark.parametrize("where", ["jobs", "ray"])
def test_arms_and_seeds_at_once_give_the_rows_of_a_sequence(tmp_path, small_experiment, monkeypatch, where):
    experiment, scale = small_experiment
    scale = replace(scale, steps=2)
    alone = experiment.run(tmp_path / "alone", scale)
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path / "other")
    monkeypatch.setattr(fan_out, "side_by_side", in_this_process)
    monkeypatch.setattr(fan_out, "cores", lambda: 2)
    ray = InThisProcess()
    token = FAN_OUT.set(partial(in_jobs, 2) if where == "jobs" else partial(on_ray, ray))
    try:
        spread = experiment.run(tmp_path / "spread", scale)
    finally:
        FAN_OUT.reset(token)
    assert spread.rows == alone.rows
    # The arm that is not trained, and two arms with two seeds, which ask for the memory of their plan.
    wanted = [False, True, True, True, True] if where == "ray" else []
    assert [wanted["memory"] > 0 for wanted in ray.asked] == wanted


def test_every_arm_and_seed_is_one_job_with_its_share_of_the_cores(small_experiment, monkeypatch, arms):
    asked: list[tuple[Any, ...]] = []

    def instead(work: Any, items: Any, *, processes: int, what: str) -> None:
        asked.append((work.keywords, [(one.arms[0].name, one.only_seed) for one in items], processes))

    monkeypatch.setattr(fan_out, "side_by_side", instead)
    monkeypatch.setattr(fan_out, "cores", lambda: 7)
    for number in (2, 9, 1):
        in_jobs(number, *small_experiment)
    start, *trained = [arm.name for arm in small_experiment[0].arms]
    tasks = [(start, None), *((arm, seed) for arm in trained for seed in (0, 1))]
    shared = {"scale": small_experiment[1]}
    # One job leaves all to the sequence.
    assert asked == [({**shared, "threads": 3}, tasks, 2), ({**shared, "threads": 1}, tasks, 5)]


def test_what_cannot_run_at_once_is_refused(small_experiment: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment, scale = small_experiment
    for run in (partial(in_jobs, 2), partial(on_ray, InThisProcess())):
        with pytest.raises(UsageError, match="equal times"):
            run(replace(experiment, equal_time=True), scale)
    with at_once(jobs=2):
        assert FAN_OUT.get() is not None
    assert FAN_OUT.get() is None
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    wrong: tuple[dict[str, Any], ...] = ({"jobs": 0}, {"jobs": 2}, {"jobs": 2, "ray": "local"})
    for options in wrong:
        with pytest.raises(UsageError), at_once(**options):
            pass


OWN = MissingError("no text")


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        *((ERRORS[name](), LengthwiseError) for name in NAMES[1:]),
        (ERRORS["RayTaskError"](OWN), MissingError),
        (ERRORS["RayTaskError"](ValueError("a bug")), ERRORS["RayTaskError"]),
    ],
    ids=[*NAMES[1:], "own error", "bug"],
)
def test_a_task_that_fails_for_good_ends_the_others(small_experiment, monkeypatch, failure, kind):
    """Ray itself has started it again before."""
    monkeypatch.setattr(fan_out, "memory", lambda *_: 0)
    experiment, scale = small_experiment
    ray = InThisProcess(failure)
    names = iter(f"start {number}" for number in range(1, 9))
    with pytest.raises(kind) as caught:
        on_ray(ray, experiment, scale, work=lambda *_: next(names))
    assert type(caught.value) is kind
    assert ray.cancelled == ["start 3", "start 4", "start 5"]
