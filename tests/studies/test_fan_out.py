"""Arms and seeds as tasks, with a stand-in that runs Ray's tasks in this process; `make cluster` has the real one."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lengthwise.studies.experiments import FAN_OUT
from lengthwise.studies.fan_out import fan_out


class InThisProcess:
    """The part of Ray that `fan_out` uses, on a cluster of one machine."""

    exceptions = SimpleNamespace(RayTaskError=ZeroDivisionError, WorkerCrashedError=ZeroDivisionError)

    def __init__(self) -> None:
        self.asked: list[dict[str, float]] = []

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
        return done


def test_arms_and_seeds_as_tasks_give_the_rows_of_a_sequence(tmp_path: Path) -> None:
    place = Path(__file__).parents[1] / "cluster" / "__main__.py"
    spec = importlib.util.spec_from_file_location("cluster_check", place)
    assert spec is not None
    assert spec.loader is not None
    cluster = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cluster)
    experiment, scale = cluster.experiment(tmp_path)
    scale = replace(scale, steps=2)
    alone = experiment.run(tmp_path / "alone", scale)
    ray = InThisProcess()
    token = FAN_OUT.set(partial(fan_out, ray))
    try:
        spread = experiment.run(tmp_path / "spread", scale)
    finally:
        FAN_OUT.reset(token)
    assert spread.rows == alone.rows
    # The arm that is not trained, and two arms with two seeds, which ask for the memory of their plan.
    assert [("memory" in wanted) for wanted in ray.asked] == [False, True, True, True, True]
