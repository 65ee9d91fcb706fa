"""Work at once: the cells of a study, one for each core, or the arms and seeds of an experiment.

    lengthwise reproduce tiny-books --seeds 3 --jobs 2 --out runs/tiny-books
    lengthwise reproduce tiny-books --seeds 3 --ray auto --out /shared/runs/tiny-books

Each arm and seed fills its part of the store, which the study then reads. With `--jobs` they are processes that share
the cores of this machine: small models hardly gain from more threads. With `--ray` they are tasks of a cluster, whose
machines all see the cache (LENGTHWISE_CACHE). A task whose worker dies, is ended for memory or is lost with its
machine is started again, and continues from its last checkpoint. Ray alone would not do: it is optional, and each of
its local runs takes seconds to start; nor would loky, which leaves Ctrl-C and a killed first process to its workers.
Imports torch and the engine late: processes of cells need neither.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import active_children, get_context, parent_process
from typing import TYPE_CHECKING, Any, TypeVar

from lengthwise.errors import Interrupted, LengthwiseError, MissingError, UsageError
from lengthwise.files import cache_dir
from lengthwise.progress import progress

if TYPE_CHECKING:
    from lengthwise_studies.experiments import Experiment, Scale

T = TypeVar("T")
R = TypeVar("R")

RETRIES = 3
"""How often a task is started again after its worker died, and as often after Ray ended it for memory."""
_LIBRARIES = 2**30
_WORTH_A_PROCESS = 500
"""Training steps; a process takes some seconds to start, more than a cell of fewer steps."""


def processes_for(steps: int, cells: int) -> int:
    """How many processes so many cells of so many training steps are worth: at most one for each core."""
    return min(cores(), cells) if steps >= _WORTH_A_PROCESS else 1


def cores() -> int:
    """How many cores this process may use."""
    # Not every system tells.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(
    work: Callable[[T], R],
    items: Sequence[T],
    finished: Callable[[T, R], object] = lambda item, result: None,
    *,
    processes: int,
    what: str,
    before: int = 0,
) -> None:
    """Call `finished` with each item and `work(item)`, as they finish; with one process in order, in this process.

    After an error or Ctrl-C, work in progress is discarded with its processes. `what` names the items, in the plural;
    `before` of them were finished earlier.

    Raises:
        Interrupted: Ctrl-C.
        LengthwiseError: a process was killed, for example because memory ran out.
    """
    done = before
    with progress((), what=what, total=before + len(items), initial=before) as bar:

        def take(item: T, result: R) -> None:
            nonlocal done
            finished(item, result)
            done += 1
            bar.update()

        try:
            if processes < 2:
                for item in items:
                    take(item, work(item))
            else:
                _in_processes(work, items, take, processes)
        except KeyboardInterrupt as stop:
            raise Interrupted(
                f"interrupted after {done} of {before + len(items)} {what}",
                fix="the same command with --resume continues",
            ) from stop


def _in_processes(
    work: Callable[[T], R], items: Sequence[T], take: Callable[[T, R], None], processes: int
) -> None:
    others = active_children()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_attend) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(waiting):
                take(waiting[done], done.result())
        except BrokenProcessPool as error:
            raise LengthwiseError(
                "one of the processes that work side by side was ended from outside, perhaps because memory ran out",
                fix="the same command with --resume continues",
            ) from error
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.terminate()
            raise


def _attend() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the first process, and do not outlive it."""
    first = parent_process()
    assert first is not None

    def end_with_it() -> None:
        first.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_it, daemon=True).start()


@contextmanager
def at_once(*, jobs: int | None = None, ray: str | None = None) -> Iterator[None]:
    """Let experiments inside the block train and measure arms and seeds at once.

    Args:
        jobs: so many processes of this machine.
        ray: "local" starts Ray on this machine and ends it; "auto" and "HOST:PORT" are a running cluster.

    Raises:
        UsageError: both; fewer than one job; a GPU, which jobs would share.
        LengthwiseError: Ray is not installed; there is no such cluster.
    """
    import torch

    from lengthwise_studies.experiments import FAN_OUT

    if jobs is not None and ray is not None:
        raise UsageError("--jobs and --ray", expected="one of them: Ray decides how many tasks run at once")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}", expected="1 or more")
    if (jobs or 1) > 1 and torch.cuda.is_available():
        raise UsageError("several jobs on one GPU", fix="--ray local gives each task a GPU of its own")
    cluster = None if ray is None else _connected(ray)
    token = FAN_OUT.set(partial(in_jobs, jobs or 1) if cluster is None else partial(on_ray, cluster))
    try:
        yield
    finally:
        FAN_OUT.reset(token)
        if cluster is not None:
            cluster.shutdown()


def in_jobs(jobs: int, experiment: Experiment, scale: Scale) -> None:
    """Run every arm and seed of the experiment, at most `jobs` at once, and wait for all."""
    tasks = _tasks(experiment, scale)
    jobs = min(jobs, len(tasks))
    if jobs > 1:
        run = partial(_fill, scale=scale, threads=max(1, cores() // jobs))
        side_by_side(run, tasks, processes=jobs, what="arms and seeds")


def _tasks(experiment: Experiment, scale: Scale) -> list[Experiment]:
    if experiment.equal_time:
        raise UsageError("equal times of arms that run at once", fix="leave --jobs and --ray out")
    return experiment.alone(scale)


def _fill(task: Experiment, scale: Scale, threads: int | None = None) -> None:
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
    task.fill(scale)


def _connected(address: str) -> Any:
    """Ray, connected to a cluster."""
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
    return ray


def on_ray(ray: Any, experiment: Experiment, scale: Scale, *, work: Callable[..., Any] = _fill) -> None:
    """Run every arm and seed of the experiment on the cluster, and wait for all.

    Raises:
        LengthwiseError: a task failed, with its own error; or no machine of the cluster is large enough for one.
    """
    remote = ray.remote(max_retries=RETRIES)(work)
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    gpus = any(machine.get("GPU") for machine in machines)
    waiting: list[Any] = []
    for task in _tasks(experiment, scale):
        wanted = {"num_cpus": 1, "num_gpus": 1} if gpus else {"num_cpus": 1, "memory": memory(task, scale)}
        if all(wanted.get("memory", 0) > machine.get("memory", 0) for machine in machines):
            raise LengthwiseError(
                f"no machine of the cluster has {wanted['memory'] / 1e9:.1f} GB for {task.arms[0].name}",
                fix="add a larger machine, or run without --ray",
            )
        waiting.append(remote.options(**wanted).remote(task, scale))
    with progress((), what="arms and seeds", total=len(waiting)) as bar:
        while waiting:
            done, waiting = ray.wait(waiting)
            try:
                ray.get(done)
            except ray.exceptions.RayError as error:
                for other in waiting:
                    ray.cancel(other, force=True)
                if isinstance(own := getattr(error, "cause", None), LengthwiseError):
                    raise own from error
                if isinstance(error, ray.exceptions.RayTaskError):
                    raise
                raise LengthwiseError(
                    f"Ray gave up an arm and seed: {type(error).__name__}",
                    fix="larger machines, or fewer tasks at once (Ray's logs tell more); --resume continues",
                ) from error
            bar.update(len(done))


def memory(experiment: Experiment, scale: Scale) -> int:
    """The bytes that Ray sets aside for an arm and seed on a machine without GPUs, from the plan of its training."""
    from lengthwise.training import plan

    (arm,) = experiment.arms
    recipe = experiment.recipe_of(scale, arm, experiment.seeds(scale)[0])
    needed = None if recipe is None or arm.changes is None else plan(recipe)["memory_bytes"]
    return 0 if needed is None else needed + _LIBRARIES
