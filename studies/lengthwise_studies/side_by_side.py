"""Work side by side in processes of its own: the cells of a study, one for each core, or arms and seeds."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Hashable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from multiprocessing import active_children, get_context, parent_process
from typing import Any, Protocol, TypeVar

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise.machine import progress
from lengthwise.results import Results
from lengthwise.samples import SampleLog

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
R = TypeVar("R")

_WORTH_A_PROCESS = 500
"""Training steps; a process takes some seconds to start, more than a cell of fewer steps."""


class Outcome(Protocol):
    """What a log keeps of one item."""

    def to_dict(self) -> dict[str, Any]:
        """The record."""
        ...


class Steps(Protocol):
    """The scale of a study, of which only the training steps of an item matter here."""

    @property
    def steps(self) -> int:
        """How many."""
        ...


def run_missing(
    items: Mapping[str, K],
    work: Callable[[K], Outcome],
    log: SampleLog,
    *,
    scale: Steps,
    what: str,
    so_far: Callable[[], Results] | None = None,
) -> None:
    """Run `work` on every item whose key the log does not hold, and append each outcome as it finishes.

    Raises:
        Interrupted: Ctrl-C. Finished items stay in the log; `partial` is what `so_far` makes of them.
        LengthwiseError: see `side_by_side`.
    """
    missing = {item: key for key, item in items.items() if key not in log}
    pool = side_by_side(work, list(missing), processes=processes_for(scale, len(missing)))
    try:
        with closing(pool) as finished:
            done = len(items) - len(missing)
            for item, outcome in progress(finished, what=what, total=len(items), initial=done):
                log.append(missing[item], outcome.to_dict())
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted after {sum(key in log for key in items)} of {len(items)} {what}",
            partial=None if so_far is None else so_far(),
            fix="the same command with --resume continues",
        ) from stop


def processes_for(scale: Steps, cells: int) -> int:
    """How many processes so many cells of this scale are worth: at most one for each core."""
    return min(cores(), cells) if scale.steps >= _WORTH_A_PROCESS else 1


def cores() -> int:
    """How many cores this process may use."""
    # Not every system tells.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(work: Callable[[T], R], items: Sequence[T], *, processes: int) -> Generator[tuple[T, R]]:
    """Each item with `work(item)`, as they finish; with one process in order, and in this process.

    When the loop over it ends early (an error, Ctrl-C), work in progress is discarded with its processes.

    Raises:
        LengthwiseError: a process was killed, for example because memory ran out.
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_the_first, daemon=True).start()


def _end_with_the_first() -> None:
    first = parent_process()
    assert first is not None
    first.join()
    os._exit(1)
