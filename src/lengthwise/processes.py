"""The processes that torchrun started together, by its environment variables, and their progress. Needs no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from multiprocessing import parent_process
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def process_count() -> int:
    """How many processes work together: torchrun's number, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def process_rank() -> int:
    """The number of this process among them, from 0."""
    return int(os.environ.get("RANK", "0"))


def is_main_process() -> bool:
    """Whether this process writes the run folder and reports: torchrun's rank 0, or the only one."""
    return process_rank() == 0


def local_rank() -> int | None:
    """The number of this process on its machine, which is that of its device; None without torchrun."""
    rank = os.environ.get("LOCAL_RANK")
    return None if rank is None else int(rank)


def progress(items: Iterable[T], *, what: str, total: int | None = None, initial: int = 0) -> tqdm[T]:
    """Iterate with a bar on standard error that shows progress and time left.

    On a terminal the bar is live; in a log file it is redrawn every 15 seconds at most. Of several processes only the
    first shows its bar, and a process that another one started for its work shows none.
    """
    live = sys.stderr.isatty()
    return tqdm(
        items,
        desc=what,
        total=total,
        initial=initial,
        file=sys.stderr,
        mininterval=0.2 if live else 15.0,
        dynamic_ncols=live,
        disable=not is_main_process() or parent_process() is not None,
    )
