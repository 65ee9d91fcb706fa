"""Bars on standard error: of items, and of the tokens that models read, which whoever reads them reports.

Importing it loads no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import parent_process
from typing import Any, TypeVar

from tqdm.auto import tqdm

from lengthwise.machine import is_main_process

T = TypeVar("T")

_WATCH: list[Callable[[float], None]] = []
"""Functions that take a count of tokens read; `advance` calls the last one."""


class _StandardError:
    """Standard error. What it cannot take (`|& head`, a log on a full disk) is left out, and ends no run."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


_STANDARD_ERROR = _StandardError()
"""One for all, by which tqdm knows that a line and a bar share their place."""


def progress(
    items: Iterable[T], *, what: str, total: int | None = None, initial: int = 0, unit: str = "it"
) -> tqdm[T]:
    """Iterate with a bar on standard error that shows progress and time left.

    On a terminal the bar is live; in a log file it is redrawn every 15 seconds at most. Of several processes only the
    first shows its bar, and a process that another one started for its work shows none.
    """
    live = sys.stderr.isatty() or any(base.__module__ == "tqdm.notebook" for base in tqdm.__mro__)
    return tqdm(
        items,
        desc=what,
        total=total,
        initial=initial,
        file=_STANDARD_ERROR,
        mininterval=0.2 if live else 15.0,
        dynamic_ncols=live,
        disable=not is_main_process() or parent_process() is not None,
        unit=unit,
        unit_scale=unit != "it",
    )


def say(text: str) -> None:
    """Write a line on standard error, above the bars that are drawn there."""
    tqdm.write(text, file=_STANDARD_ERROR)


class TokenBar:
    """A progress bar over `total` tokens. It starts at `read`, and shows finished items."""

    def __init__(self, what: str, *, total: int, read: int, items: int, finished: int) -> None:
        self._bar = progress((), what=what, total=total, initial=read, unit="tok")
        self._items, self._finished = items, finished
        self._planned = self._reported = 0.0

    def __enter__(self) -> TokenBar:
        self.finish(0)
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.close()

    def finish(self, count: int = 1) -> None:
        """So many more items are finished."""
        self._finished += count
        self._bar.set_postfix_str(f"{self._finished}/{self._items}", refresh=False)

    @contextmanager
    def reading(self, tokens: int) -> Iterator[None]:
        """Show the tokens that are reported inside, up to `tokens`, which are read at its end.

        Proofs and fallbacks read more tokens than planned. So each report is scaled by planned / reported so far.
        """
        if self._bar.disable:
            yield
            return
        before, shown = self._reported, 0
        scale = self._planned / before if before else 1.0

        def watch(more: float) -> None:
            nonlocal shown
            self._reported += more
            read = min(int(scale * (self._reported - before)), tokens)
            self._bar.update(read - shown)
            shown = read

        _WATCH.append(watch)
        try:
            yield
        finally:
            _WATCH.remove(watch)
        self._planned += tokens
        self._bar.update(tokens - shown)


def watched() -> bool:
    """Whether a bar shows the tokens that are read."""
    return bool(_WATCH)


def advance(tokens: float) -> None:
    """Report that a model has read so many more tokens."""
    for watch in _WATCH[-1:]:
        watch(tokens)
