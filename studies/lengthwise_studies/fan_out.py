"""The arms and seeds of an experiment as Ray tasks: each fills its part of the store, which the study then reads.

    lengthwise reproduce tiny-books --seeds 3 --ray auto --out /shared/runs/tiny-books

The cache has to be a folder that every machine of the cluster sees (LENGTHWISE_CACHE). A task whose worker dies, is
ended by Ray for memory or is lost with its machine is started again, and continues from its last checkpoint and
finished samples.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.files import cache_dir
from lengthwise.machine import progress
from lengthwise_studies.experiments import FAN_OUT, Experiment, Scale

RETRIES = 3
"""How often a task is started again after its worker died, and as often after Ray ended it for memory."""
_LIBRARIES = 2**30


@contextlib.contextmanager
def on_ray(address: str) -> Iterator[None]:
    """Let experiments inside the block train and measure on Ray.

    Args:
        address: "local" starts Ray on this machine and ends it; "auto" and "HOST:PORT" are a running cluster.

    Raises:
        MissingError: Ray is not installed.
        LengthwiseError: there is no such cluster.
    """
    if importlib.util.find_spec("ray") is None:
        raise MissingError("--ray needs Ray, which is not installed", fix="pip install './studies[ray]'")
    # Ray counts these apart from other deaths, and by default without end: a task too large would run for ever.
    os.environ.setdefault("RAY_task_oom_retries", str(RETRIES))
    ray = importlib.import_module("ray")
    workers = {"env_vars": {"LENGTHWISE_CACHE": str(cache_dir().absolute())}}
    where = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, runtime_env=workers, **where)
    except ConnectionError as error:
        raise LengthwiseError(
            f"no Ray cluster at {address}: {error}", fix="ray start --head, or --ray local"
        ) from error
    token = FAN_OUT.set(partial(fan_out, ray))
    try:
        yield
    finally:
        FAN_OUT.reset(token)
        ray.shutdown()


def resources(experiment: Experiment, scale: Scale, *, gpus: bool) -> dict[str, float]:
    """What Ray sets aside for a task, from the plan of its training: one GPU, or main memory."""
    from lengthwise.training import plan

    if gpus:
        return {"num_cpus": 1, "num_gpus": 1}
    (arm,) = experiment.arms
    recipe = experiment.recipe_of(scale, arm, experiment.seeds(scale)[0])
    needed = None if recipe is None or arm.changes is None else plan(recipe)["memory_bytes"]
    return {"num_cpus": 1} if needed is None else {"num_cpus": 1, "memory": needed + _LIBRARIES}


def fan_out(
    ray: Any,
    experiment: Experiment,
    scale: Scale,
    *,
    work: Callable[[Experiment, Scale], Any] = Experiment.fill,
) -> None:
    """Run every task of the experiment on the cluster, and wait for all.

    Raises:
        UsageError: its arms train for equal times, which machines of a cluster do not share.
        LengthwiseError: a task failed, with its own error; or no machine of the cluster is large enough for one.
    """
    if experiment.equal_time:
        raise UsageError("equal times of arms on several machines", fix="leave --ray out")
    remote = ray.remote(max_retries=RETRIES)(work)
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = any(machine.get("GPU") for machine in machines)
    waiting: list[Any] = []
    for task in experiment.alone(scale):
        wanted = resources(task, scale, gpus=gpus)
        named = {"CPU": wanted["num_cpus"], "memory": wanted.get("memory", 0)}
        if not any(all(m.get(name, 0) >= amount for name, amount in named.items()) for m in machines):
            raise LengthwiseError(
                f"no machine of the cluster has {named['memory'] / 1e9:.1f} GB for {task.arms[0].name}",
                fix="add a larger machine, or run without --ray",
            )
        waiting.append(remote.options(**wanted).remote(task, scale))
    with progress(waiting, what="arms and seeds", total=len(waiting)) as bar:
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                ray.get(done)
            except ray.exceptions.RayError as error:
                for other in waiting:
                    ray.cancel(other, force=True)
                explained = _explained(ray.exceptions, error)
                if explained is None:
                    raise
                raise explained from error
            bar.update(len(done))


def _explained(known: Any, error: Any) -> LengthwiseError | None:
    """Our own error that a task failed with, or that its worker died too often; None for any other."""
    if isinstance(error, known.RayTaskError):
        return error.cause if isinstance(error.cause, LengthwiseError) else None
    deaths = {
        known.WorkerCrashedError: ("died", "look at Ray's logs"),
        known.OutOfMemoryError: ("was ended for memory", "use larger machines, or fewer tasks at once"),
        known.NodeDiedError: ("was lost with its machine", "look at the machines of the cluster"),
    }
    for kind, (what, fix) in deaths.items():
        if isinstance(error, kind):
            return LengthwiseError(
                f"a worker {what} {RETRIES + 1} times at the same task",
                fix=f"{fix}; --resume continues from what is finished",
            )
    return None
