"""This process among those that train together, as torchrun numbers them."""

from __future__ import annotations

import os


def process_count() -> int:
    """How many processes train together: torchrun's number, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process writes the run folder and reports: torchrun's rank 0, or the only one."""
    return int(os.environ.get("RANK", "0")) == 0
