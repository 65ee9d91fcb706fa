"""The append-only log of finished samples, which makes interrupted runs resumable."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from lengthwise.errors import LengthwiseError, reason
from lengthwise.files import cannot_write

T = TypeVar("T")


class SampleLog:
    """Finished samples by key, in memory or appended to a JSONL file as they finish.

    A killed run leaves at most one torn last line; it is dropped on opening, so that sample is simply
    done again. Every line carries a checksum of itself, so a damaged sample never becomes part of a number.
    Lines without one are of an earlier version and are taken as they are.

    Args:
        path: the `samples.jsonl` to read and append to; None keeps the samples in memory.

    Raises:
        LengthwiseError: the file cannot be written, or a line before the last is damaged.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._records: dict[str, dict[str, Any]] = {}
        self._unverified = False
        if path is not None and path.exists():
            self._read(path)

    @classmethod
    def of(cls, records: Mapping[str, dict[str, Any]]) -> SampleLog:
        """These samples, in memory."""
        log = cls()
        log._records = dict(records)
        return log

    def __contains__(self, key: str) -> bool:
        return key in self._records

    def __getitem__(self, key: str) -> dict[str, Any]:
        return self._records[key]

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def summarised(self, summarise: Callable[[SampleLog], T]) -> T:
        """What `summarise` makes of the samples.

        Raises:
            LengthwiseError: a line without a checksum (of an earlier version) lacks a value or has a wrong one.
        """
        try:
            return summarise(self)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            if not self._unverified or isinstance(error, LengthwiseError):
                raise
            raise LengthwiseError(
                f"{self._path}: a sample without a checksum lacks a value, or has a wrong one: {reason(error)}",
                expected="the samples of an earlier version, as they were written",
                fix="--overwrite starts again",
            ) from error

    def share(self, items: Sequence[T], *, at_once: int = 1) -> list[T]:
        """The items that this process is to do, in batches of `at_once`: all of them, where it is alone."""
        return list(items)

    def gather(self) -> None:
        """Wait until the samples of every process are here; there is only this one."""

    def append(self, key: str, record: dict[str, Any]) -> None:
        """Add one finished sample under a new `key`."""
        assert key not in self._records, f"sample {key!r} is already in the log"
        self._records[key] = record
        if self._path is not None:
            line = _sealed(json.dumps({"key": key, **record}, allow_nan=False))
            try:
                with self._path.open("a") as stream:
                    stream.write(line + "\n")
            except OSError as error:
                raise cannot_write(self._path, error) from error

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                record = _unsealed(line)
                self._unverified |= _SEAL.encode() not in line
                self._records[record.pop("key")] = record
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
                raise LengthwiseError(
                    f"{path}, line {number} is damaged: {line[:60]!r}",
                    expected='one finished sample {"key": ..., ...} per line',
                    fix="delete that line and --resume, or --overwrite to start again",
                ) from error
        if len(whole) < len(data):
            with path.open("r+b") as stream:
                stream.truncate(len(whole))


_SEAL = ', "checksum": '


def _sealed(line: str) -> str:
    """A JSON object with the CRC-32 of its text as its last value."""
    return f"{line[:-1]}{_SEAL}{zlib.crc32(line.encode())}}}"


def _unsealed(line: bytes) -> dict[str, Any]:
    """The object; ValueError if its checksum is of another text."""
    record = json.loads(line)
    checksum = record.pop("checksum", None)
    text = line.decode().rpartition(_SEAL)[0] + "}"
    if checksum is not None and checksum != zlib.crc32(text.encode()):
        raise ValueError("the checksum is of another text")
    return record
