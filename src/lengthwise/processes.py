"""The processes that torchrun started together, as its environment variables tell. Needs no torch."""

from __future__ import annotations

import os


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
