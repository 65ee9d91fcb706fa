"""The arms and seeds of an experiment in several processes of this machine, which share its cores.

    lengthwise reproduce tiny-books --seeds 3 --jobs 2 --out runs/tiny-books

Small models hardly gain from more threads, so two processes of one thread each finish sooner than one of two.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import closing
from functools import partial

import torch

from lengthwise.errors import Interrupted, UsageError
from lengthwise.machine import progress
from lengthwise_studies.experiments import FAN_OUT, Experiment, Scale
from lengthwise_studies.side_by_side import cores, side_by_side


@contextlib.contextmanager
def in_jobs(jobs: int) -> Iterator[None]:
    """Let experiments inside the block train and measure so many arms and seeds at once.

    Raises:
        UsageError: fewer than one; a GPU, which they would share.
    """
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}", expected="1 or more")
    if jobs > 1 and torch.cuda.is_available():
        raise UsageError("several jobs on one GPU", fix="--ray local gives each task a GPU of its own")
    token = FAN_OUT.set(partial(fill_in_jobs, jobs))
    try:
        yield
    finally:
        FAN_OUT.reset(token)


def fill_in_jobs(jobs: int, experiment: Experiment, scale: Scale) -> None:
    """Run every arm and seed of the experiment, at most `jobs` at once, and wait for all.

    Raises:
        UsageError: its arms train for equal times, which jobs on the same cores would change.
        LengthwiseError: what a job failed with; or it was ended from outside.
        Interrupted: Ctrl-C. Checkpoints and finished samples stay.
    """
    if experiment.equal_time:
        raise UsageError("equal times of arms that share their cores", fix="leave --jobs out")
    tasks = experiment.alone(scale)
    jobs = min(jobs, len(tasks))
    if jobs == 1:
        return
    run = partial(_fill, scale=scale, threads=max(1, cores() // jobs))
    done = 0
    try:
        with closing(side_by_side(run, tasks, processes=jobs)) as finished:
            for _ in progress(finished, what="arms and seeds", total=len(tasks)):
                done += 1
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted after {done} of {len(tasks)} arms and seeds",
            fix="the same command with --resume continues",
        ) from stop


def _fill(task: Experiment, *, scale: Scale, threads: int) -> None:
    torch.set_num_threads(threads)
    task.fill(scale)
