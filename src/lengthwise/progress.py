"""Progress bars on standard error, sparse where it is not a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from multiprocessing import parent_process
from typing import TypeVar

from tqdm import tqdm

from lengthwise.processes import is_main_process

T = TypeVar("T")


def progress(items: Iterable[T], *, what: str, total: int | None = None, initial: int = 0) -> tqdm[T]:
    """Iterate with a bar that shows progress and time left.

    On a terminal the bar is live; in a log file it is redrawn every 15 seconds at most. Of several processes only the
    first shows its bar, and one that another has started for its work shows none.
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
        leave=True,
        disable=not is_main_process() or parent_process() is not None,
    )
