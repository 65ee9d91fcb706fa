"""Arms and seeds as tasks, with a stand-in that runs Ray's tasks in this process; `make cluster` has the real one."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lengthwise.errors import LengthwiseError, MissingError
from lengthwise_studies import store
from lengthwise_studies.experiments import FAN_OUT, Experiment, Scale
from lengthwise_studies.fan_out import fan_out


class RayError(Exception):
    """Ray's errors, each with the cause that an error of a task has."""

    def __init__(self, cause: BaseException | None = None) -> None:
        self.cause = cause


NAMES = ("RayTaskError", "WorkerCrashedError", "OutOfMemoryError", "NodeDiedError")
ERRORS = {name: type(name, (RayError,), {}) for name in NAMES}


class InThisProcess:
    """The part of Ray that `fan_out` uses, on a cluster of one machine.

    Args:
        failure: what the second task ends with.
    """

    exceptions = SimpleNamespace(RayError=RayError, **ERRORS)

    def __init__(self, failure: RayError | None = None) -> None:
        self.asked: list[dict[str, float]] = []
        self.failure = failure
        self.cancelled: list[Any] = []

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": 2.0, "memory": 64e9}}]

    def remote(self, **_: Any) -> Any:
        def task(work: Any) -> Any:
            def options(**wanted: float) -> Any:
                self.asked.append(wanted)
                return SimpleNamespace(remote=work)

            return SimpleNamespace(options=options)

        return task

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[:1], waiting[1:]

    def get(self, done: list[Any]) -> list[Any]:
        if self.failure is not None and done == ["start 2"]:
            raise self.failure
        return done

    def cancel(self, task: Any, *, force: bool) -> None:
        assert force
        self.cancelled.append(task)


def test_arms_and_seeds_as_tasks_give_the_rows_of_a_sequence(
    tmp_path: Path, small_experiment: tuple[Experiment, Scale], monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment, scale = small_experiment
    scale = replace(scale, steps=2)
    alone = experiment.run(tmp_path / "alone", scale)
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path / "other")
    ray = InThisProcess()
    token = FAN_OUT.set(partial(fan_out, ray))
    try:
        spread = experiment.run(tmp_path / "spread", scale)
    finally:
        FAN_OUT.reset(token)
    assert spread.rows == alone.rows
    # The arm that is not trained, and two arms with two seeds, which ask for the memory of their plan.
    assert [("memory" in wanted) for wanted in ray.asked] == [False, True, True, True, True]


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
def test_a_task_that_fails_for_good_ends_the_others(
    small_experiment: tuple[Experiment, Scale],
    monkeypatch: pytest.MonkeyPatch,
    failure: RayError,
    kind: type[BaseException],
) -> None:
    """Ray itself has started it again before."""
    monkeypatch.setattr("lengthwise_studies.fan_out.resources", lambda *_, **__: {"num_cpus": 1})
    experiment, scale = small_experiment
    ray = InThisProcess(failure)
    names = iter(f"start {number}" for number in range(1, 9))
    with pytest.raises(kind) as caught:
        fan_out(ray, experiment, scale, work=lambda *_: next(names))
    assert type(caught.value) is kind
    assert ray.cancelled == ["start 3", "start 4", "start 5"]
