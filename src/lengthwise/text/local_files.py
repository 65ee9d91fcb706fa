"""Files and folders of text: which are read, how, and what is left out.

Each kind of file is one entry of `READERS`. They read lines and rows themselves: the readers of `datasets` name no
line, and put null where a row has no such field.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import importlib
import io
import json
import lzma
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lengthwise.errors import MissingError, UsageError, nearest, reason
from lengthwise.versions import need

SKIPPED = "--skip-unreadable leaves it out"
"""The way out of every mistake in a file."""


class Unreadable(UsageError):
    """A file or row that `skip` may leave out, counted as `kind`."""

    def __init__(
        self, kind: str, problem: str, *, expected: str | None = None, fix: str | None = None
    ) -> None:
        self.kind = kind
        super().__init__(problem, expected=expected, fix=f"{fix}, or {SKIPPED}" if fix else SKIPPED)


@dataclass(frozen=True)
class Reading:
    """How files are read."""

    text_field: str = "text"
    encoding: str = "utf-8"
    skip: bool = False


Rows = Iterator[tuple[int, object]]
"""(line or row, its value), or an `Unreadable` in place of the value."""


def _zstd(path: Path) -> Any:
    try:
        # By name: it is no dependency.
        return importlib.import_module("zstandard").open(path)
    except ImportError as error:
        raise MissingError(f"{path} needs the package zstandard", fix="pip install zstandard") from error


_COMPRESSED: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _zstd,
}


def _suffixes(path: Path) -> tuple[str, str]:
    """What a file holds, and how it is compressed."""
    last = path.suffix.lower()
    if last in _COMPRESSED:
        return Path(path.stem).suffix.lower(), last
    return last, ""


def _content(path: Path) -> bytes:
    compressed = _suffixes(path)[1]
    try:
        if not compressed:
            return path.read_bytes()
        with _COMPRESSED[compressed](path) as stream:
            return stream.read()
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise Unreadable("unreadable file", f"cannot read {path}: {reason(error)}") from error
    except Exception as error:
        # zstandard has an error of its own, and may not be there.
        if type(error).__module__.partition(".")[0] != "zstandard":
            raise
        raise Unreadable("unreadable file", f"cannot read {path}: {reason(error)}") from error


def _text(path: Path, how: Reading) -> str:
    """The text of a file, without a byte order mark, its lines ended by line feeds."""
    data = _content(path)
    try:
        text = data.decode(how.encoding).removeprefix("\ufeff")
    except LookupError as error:
        raise UsageError(
            f"unknown encoding {how.encoding!r}", expected="utf-8, utf-16, latin-1, gbk, ..."
        ) from error
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise Unreadable(
            f"file that is not {how.encoding}",
            f"{path}, line {line}: cannot be read as {how.encoding} text ({error})",
            fix="give --encoding (utf-16, latin-1, gbk, ...)",
        ) from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _field(row: Any, how: Reading, where: str) -> object:
    """The value of the row's field; an `Unreadable` if it has none."""
    if how.text_field in row:
        return row[how.text_field]
    return Unreadable(
        f"row without {how.text_field!r}",
        f"{where} has no field {how.text_field!r}",
        expected=nearest(how.text_field, map(str, row)),
        fix="give --text-field",
    )


def _jsonl(path: Path, how: Reading) -> Rows:
    for number, line in enumerate(_text(path, how).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
            row.keys()
        except (ValueError, RecursionError, AttributeError) as error:
            yield (
                number,
                Unreadable(
                    "line that is no JSON object",
                    f"{where} is no JSON object that can be read: {reason(error)}",
                ),
            )
            continue
        yield number, _field(row, how, where)


def _json(path: Path, how: Reading) -> Rows:
    try:
        rows = json.loads(_text(path, how))
    except (ValueError, RecursionError) as error:
        if not str(error).startswith("Extra data"):
            raise Unreadable(
                "unreadable file", f"{path} holds no JSON that can be read: {reason(error)}"
            ) from error
        yield from _jsonl(path, how)
        return
    rows = [rows] if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable(
            "unreadable file", f"{path} holds other JSON", expected="a list of objects, or one a line"
        )
    for number, row in enumerate(rows, start=1):
        yield number, _field(row, how, f"{path}, row {number}")


def _csv(path: Path, how: Reading) -> Rows:
    before = csv.field_size_limit(sys.maxsize)
    lines = csv.reader(
        io.StringIO(_text(path, how), newline=""),
        delimiter="\t" if _suffixes(path)[0] == ".tsv" else ",",
        strict=True,
    )
    try:
        names = next(lines, [])
        for row in lines:
            where = f"{path}, line {lines.line_num}"
            if row:
                yield lines.line_num, _field(dict(zip(names, row, strict=False)), how, where)
    except csv.Error as error:
        raise Unreadable(
            "unreadable file", f"{path}, line {lines.line_num}: {error}", expected="CSV"
        ) from error
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path, how: Reading) -> Rows:
    need("pyarrow")
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        table = pyarrow.parquet.ParquetFile(path)
        missing = _field(dict.fromkeys(table.schema_arrow.names), how, str(path))
        if isinstance(missing, Unreadable):
            raise missing
        for batch in table.iter_batches(columns=[how.text_field]):
            for value in batch.column(0).to_pylist():
                number += 1
                yield number, value
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"{path} is not a Parquet file that can be read: {reason(error)}"
        raise Unreadable("unreadable file", problem) from error


TEXTS = (".txt", ".md")
READERS: dict[str, Callable[[Path, Reading], Rows]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _csv,
    ".parquet": _parquet,
}
"""The readers of tables by suffix; .txt and .md files are a document each. All but Parquet may be compressed."""
SUFFIXES = ", ".join((*TEXTS, *READERS))


def is_text_file(path: Path) -> bool:
    """Whether the name is one of a file that is read."""
    kind, compressed = _suffixes(path)
    return kind in TEXTS or (kind in READERS and not (kind == ".parquet" and compressed))


def has_columns(path: Path) -> bool:
    """Whether there are tables at a path."""
    files = (Path(inner, name) for inner, _, names in os.walk(path) for name in names)
    return any(
        is_text_file(each) and _suffixes(each)[0] in READERS for each in ([path] if path.is_file() else files)
    )


def read_files(path: Path, how: Reading) -> tuple[dict[str, object], Counter[str]]:
    """The values of a file, or of all files in a folder and below: text, null, or messages; and what is left out.

    Raises:
        UsageError: no file that is read, or one, or a row, that cannot be and is not skipped.
    """
    if path.is_dir():
        files, left_out = _files_in(path)
    elif path.is_file() and is_text_file(path):
        files, left_out = {path.name: path}, Counter[str]()
    else:
        # Reading a pipe or a device may never end.
        raise UsageError(f"{path} is not a regular file of text", expected=f"one of: {SUFFIXES}, or a folder")
    found: dict[str, object] = {}
    for name, file in files.items():
        try:
            for own, value in _documents(name, file, how):
                if not isinstance(value, Unreadable):
                    found[own] = value
                elif how.skip:
                    left_out[value.kind] += 1
                else:
                    raise value
        except Unreadable as error:
            if not how.skip:
                raise
            left_out[error.kind] += 1
    return found, left_out


def _documents(name: str, file: Path, how: Reading) -> Iterable[tuple[str, object]]:
    kind = _suffixes(file)[0]
    if kind in TEXTS:
        return [(name, _text(file, how))]
    return (
        (f"{name}:{number}", text_or_chat(value, how.text_field, where=f"{file}, row {number}"))
        for number, value in READERS[kind](file, how)
    )


def text_or_chat(value: object, text_field: str, *, where: str) -> object:
    """A text, "" for null, or a list of messages; an `Unreadable` for something else."""
    chat = isinstance(value, list) and all(isinstance(each, dict) and "role" in each for each in value)
    if isinstance(value, str | Unreadable) or (chat and value):
        return value
    if value is None or value == []:
        return ""
    return Unreadable(
        f"row whose {text_field!r} is no text",
        f"{where}: {text_field!r} is a {type(value).__name__}, not text",
        expected="text, or messages with role and content",
        fix="give another --text-field",
    )


def _files_in(folder: Path) -> tuple[dict[str, Path], Counter[str]]:
    """The files that are read, by their path below the folder, and what is left out by kind."""
    left_out: Counter[str] = Counter()
    paths: list[Path] = []
    # Unlike rglob, walk reports folders that cannot be read.
    for inner, folders, names in os.walk(folder, onerror=_refuse):
        for name in [name for name in folders if name.startswith(".")]:
            folders.remove(name)
            left_out["hidden folder"] += 1
        left_out["linked folder"] += sum(Path(inner, name).is_symlink() for name in folders)
        for path in (Path(inner, name) for name in names):
            if path.name.startswith("."):
                left_out["hidden file"] += 1
            elif not path.exists():
                left_out["broken link"] += 1
            elif not path.is_file():
                left_out["file that is not regular"] += 1
            elif not is_text_file(path):
                left_out[path.suffix.lower().removeprefix(".") or "file without suffix"] += 1
            else:
                paths.append(path)
    kept: dict[str, Path] = {}
    seen: set[Path] = set()
    # Files before the links to them.
    for path in sorted(paths, key=lambda path: (path.is_symlink(), path)):
        if (real := path.resolve()) in seen:
            left_out["link to a file that is read"] += 1
        else:
            seen.add(real)
            kept[path.relative_to(folder).as_posix()] = path
    if not kept:
        counts = ", ".join(f"{count} {kind}" for kind, count in (+left_out).items())
        raise UsageError(
            f"the folder {folder} has no file of text in it or below, but {counts or 'nothing'}",
            expected=f"files of {SUFFIXES}",
            fix=f"use hf://{folder} for a data set in the hub's layout",
        )
    return {name: kept[name] for name in sorted(kept)}, +left_out


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"cannot read a folder: {error}") from error
