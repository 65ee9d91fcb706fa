"""The append-only log of finished samples: stopped runs continue from it, and the processes of torchrun share it.

    torchrun --nproc-per-node 4 -m lengthwise ppl MODEL --out runs/ppl

Every process takes whole batches in turn, each the batch of a run in one process. A finished sample goes to rank 0
through torchrun's store and is appended to the one log, so a stopped run continues with any number of processes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lengthwise.errors import LengthwiseError, UsageError, reason
from lengthwise.files import writing
from lengthwise.machine import is_main_process, process_count, process_rank

T = TypeVar("T")
# Short waits in place of the store's own, which Ctrl-C does not end.
_PAUSE_SECONDS = 0.02
_SYNC_SECONDS = 1.0
"""A power loss takes samples of so many seconds at most; to wait for the disk at every one would slow small runs."""
_CHECKSUM = b', "checksum": '
_RUNS = itertools.count()


class SampleLog(dict[str, dict[str, Any]]):
    """Finished samples by key, in memory or appended to a JSONL file as they finish.

    A killed run leaves at most one torn last line; a power loss takes at most the last second besides. A torn line
    counts as nothing, so that sample is done again, and the next line takes its place. Reading changes no file: a
    running process may be writing that line. Every line carries the CRC-32 of its text, so a damaged sample never
    becomes part of a number.

    Args:
        path: the `samples.jsonl` to read and append to; None keeps the samples in memory.

    Raises:
        LengthwiseError: the file cannot be written, or a line before the last is damaged.
        UsageError: the samples are of another version of lengthwise.
    """

    store: Any = None
    """The `new_store` through which processes that share the samples hand them to rank 0."""

    def __init__(self, path: Path | None = None) -> None:
        super().__init__()
        self._path = path
        self._torn_at: int | None = None
        """Where the torn last line begins."""
        self._synced_at = -_SYNC_SECONDS
        # Processes that still send samples.
        self._others = process_count() - 1
        if path is not None and path.exists():
            self._read(path)

    def share(self, batches: Sequence[T]) -> Sequence[T]:
        """The batches that this process is to do: every n-th, where n processes share them."""
        return batches if self.store is None else batches[process_rank() :: process_count()]

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Add one finished sample under a new `key`, and what other processes have sent meanwhile."""
        self._add(key, record)
        if self.store is not None and is_main_process():
            self._receive()
        elif self.store is not None:
            self.store.queue_push("samples", json.dumps([key, record]))

    def gather(self) -> None:
        """Wait until rank 0 has the samples of all processes."""
        if self.store is not None and not is_main_process():
            self.store.queue_push("samples", "null")
        while self.store is not None and is_main_process() and self._others:
            time.sleep(_PAUSE_SECONDS)
            self._receive()
        self._sync()

    def _receive(self) -> None:
        while self.store.queue_len("samples"):
            sample = json.loads(self.store.queue_pop("samples"))
            if sample is None:
                self._others -= 1
            else:
                self._add(*sample)

    def _add(self, key: str, record: dict[str, Any]) -> None:
        assert key not in self, f"sample {key!r} is already in the log"
        self[key] = record
        if self._path is not None:
            text = json.dumps({"key": key, **record}, allow_nan=False).encode()
            with writing(self._path), self._path.open("ab") as stream:
                if self._torn_at is not None:
                    stream.truncate(self._torn_at)
                    self._torn_at = None
                stream.write(b"%b%b%d}\n" % (text[:-1], _CHECKSUM, zlib.crc32(text)))
            if time.monotonic() - self._synced_at >= _SYNC_SECONDS:
                self._sync()

    def _sync(self) -> None:
        """Wait until the disk has what is written."""
        if self._path is not None and self._path.exists():
            with writing(self._path), self._path.open("ab") as stream:
                os.fsync(stream.fileno())
            self._synced_at = time.monotonic()

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            text, _, checksum = line.rpartition(_CHECKSUM)
            if checksum != b"%d}" % zlib.crc32(text + b"}"):
                raise LengthwiseError(
                    f"{path}, line {number} is damaged: {line[:60]!r}",
                    expected='one finished sample {"key": ..., ..., "checksum": ...} per line',
                    fix="delete that line and --resume, or --overwrite to start again",
                )
            record = json.loads(text + b"}")
            key = record.pop("key", None)
            if key is None or key in self:
                raise other_version(
                    f"the samples of {path}",
                    f"line {number} has {'no key' if key is None else f'{key} again'}",
                )
            self[key] = record
        if len(whole) < len(data):
            self._torn_at = len(whole)


@contextlib.contextmanager
def of_this_version(what: str) -> Iterator[None]:
    """Inside, what a run kept is read: UsageError where it lacks something, or has it in another form."""
    try:
        yield
    except LengthwiseError:
        raise
    except (
        LookupError, TypeError, ValueError, AttributeError, AssertionError, ArithmeticError, StopIteration
    ) as error:  # fmt: skip
        raise other_version(what, f"{type(error).__name__}: {reason(error)}") from error


def other_version(what: str, lacks: str) -> UsageError:
    """The error for what a run kept and this version cannot read."""
    return UsageError(
        f"{what} are of another version of lengthwise, or were changed: {lacks}",
        expected="a run as this version keeps it",
        fix="measure again, with --overwrite or another --out; --verbose shows what was read",
    )


def new_store() -> Any:
    """A part of torchrun's store for one run: a program may share one run after another."""
    from torch.distributed.distributed_c10d import PrefixStore

    return PrefixStore(f"lengthwise/{next(_RUNS)}", _torchrun_store())


def received(store: Any, name: str) -> Any:
    """The plain value that rank 0 sets; waits for it."""
    while not store.check([name]):
        time.sleep(_PAUSE_SECONDS)
    return json.loads(store.get(name))


@functools.cache
def _torchrun_store() -> Any:
    """The store of the processes. Kept, because without torchrun's agent rank 0 holds it for the others."""
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(iter(rendezvous("env://")))
    return store
