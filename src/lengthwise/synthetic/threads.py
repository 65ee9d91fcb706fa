"""One thread for models whose kernels are too small to share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Run torch's operations on one thread inside, on as many as before outside.

    A kernel here takes some tens of microseconds. Two threads wait for each other after each; where another process
    has one of the cores, a step takes over eight times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
