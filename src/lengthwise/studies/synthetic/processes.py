"""Cells side by side: a process for each core, since each cell runs on one thread."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context, parent_process
from typing import TypeVar

from lengthwise.errors import LengthwiseError
from lengthwise.synthetic.cells import Scale

T = TypeVar("T")
R = TypeVar("R")

_WORTH_A_PROCESS = 500
"""Training steps; a process takes some seconds to start, more than a cell of fewer steps."""


def processes_for(scale: Scale, cells: int) -> int:
    """How many processes so many cells of this scale are worth: at most one for each core."""
    # Not every system tells which cores this process may use.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, cells) if scale.steps >= _WORTH_A_PROCESS else 1


def side_by_side(work: Callable[[T], R], items: Sequence[T], *, processes: int) -> Generator[tuple[T, R]]:
    """Each item with `work(item)`, as they are finished; in order, and here, with one process.

    When the loop over it ends early (an error, Ctrl-C), work in progress is thrown away with its processes.

    Raises:
        LengthwiseError: a process was killed, for example for want of memory.
        Exception: whatever `work` raises.
    """
    if processes < 2:
        for item in items:
            yield item, work(item)
        return
    others = active_children()
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn"), initializer=_attend) as pool:
        waiting = {pool.submit(work, item): item for item in items}
        try:
            for done in as_completed(waiting):
                yield waiting[done], done.result()
        except BrokenProcessPool as error:
            raise LengthwiseError(
                "one of the processes that work side by side was ended from outside, perhaps for want of memory",
                fix="the same command with --resume goes on",
            ) from error
        except BaseException:
            for process in active_children():
                if process not in others:
                    process.terminate()
            raise


def _attend() -> None:
    """Leave Ctrl-C, which reaches every process of a terminal, to the first process, and do not outlive it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = parent_process()
    assert first is not None
    first.join()
    os._exit(1)
