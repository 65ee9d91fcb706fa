"""Work side by side in processes of its own: the cells of a study, one for each core, or arms and seeds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise.machine import progress

T = TypeVar("T")
R = TypeVar("R")

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

    After an error or Ctrl-C, work in progress is discarded with its processes.

    Args:
        what: the items are, in the plural.
        before: how many were finished earlier.

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
