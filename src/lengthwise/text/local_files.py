"""Files and folders of text: which are read, how, and what is left out.

Each kind of file is one entry of `READERS`. They read lines and rows themselves: the readers of `datasets` name no
line, and put null where a row has no such field.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import logging
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, nearest, reason
from lengthwise.settings import TextOptions
from lengthwise.text.chats import has_content
from lengthwise.text.compressed import suffixes, unpacked

logger = logging.getLogger(__name__)

_NAME = 80
"""Characters of a column's name that a message shows: without a header, the name is a text."""
_HALF = re.compile(r"[\ud800-\udfff]")
"""Half of a surrogate pair, which UTF-8 cannot say."""
_CONTROLS = {chr(code) for code in (*range(8), *range(14, 27))}
"""Bytes of UTF-16 that are characters too, but of no text; without white space, backspace and escape."""
_BEGINNING = 1 << 20
SKIPPED = "--skip-unreadable leaves it out"
"""The way out of every mistake in a file."""


class _Unreadable(UsageError):
    """A file or row that `skip` may leave out, counted as `kind`."""

    def __init__(
        self, kind: str, problem: str, *, expected: str | None = None, fix: str | None = None
    ) -> None:
        self.kind = kind
        super().__init__(problem, expected=expected, fix=f"{fix}, or {SKIPPED}" if fix else SKIPPED)


Rows = Iterator[tuple[int, Any]]
"""(line or row, the mapping that it holds), or an `_Unreadable` in place of the mapping."""


def _content(path: Path) -> bytes:
    try:
        return unpacked(path)
    except (MissingError, MemoryError):
        raise
    # Every kind of compression has errors of its own.
    except Exception as error:
        raise _Unreadable("unreadable file", f"cannot read {path}: {reason(error)}") from error


def _text(path: Path, how: TextOptions) -> str:
    """The text of a file, without a byte order mark, its lines ended by line feeds."""
    data = _content(path)
    try:
        text = data.decode(how.encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        line = data.count(b"\n", 0, getattr(error, "start", 0)) + 1
        raise _Unreadable(
            f"file that is not {how.encoding}",
            f"{path}, line {line}: cannot be read as {how.encoding} text ({error})",
            expected=f"{how.encoding} text",
            fix="give --encoding (utf-16, latin-1, gbk, ...)",
        ) from error
    # A name with NUL is no name.
    except (LookupError, ValueError) as error:
        raise UsageError(
            f"unknown encoding {how.encoding!r}", expected="utf-8, utf-16, latin-1, gbk, ..."
        ) from error
    begun = text[:_BEGINNING]
    # A space is one NUL in every script; in some the other bytes are letters and white space.
    if 4 * sum(map(begun.count, _CONTROLS)) > len(begun) or 30 * begun.count("\0") > len(begun):
        raise _Unreadable(
            f"file that is not {how.encoding}",
            f"{path}: many of its characters are control codes, as in UTF-16 without a byte order mark",
            expected=f"{how.encoding} text",
            fix="give --encoding (utf-16-le, utf-16-be)",
        )
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _object(pairs: list[tuple[str, Any]], *, field: str) -> dict[str, Any]:
    """A JSON object. ValueError if the text's key is there twice: nobody knows which of two texts is meant."""
    found = dict(pairs)
    names = (field, "role", "content") if "role" in found else (field,)
    for name in names if len(found) < len(pairs) else ():
        if sum(key == name for key, _ in pairs) > 1:
            raise ValueError(f"the key {name!r} is there twice")
    return found


def _check_names(path: Path, names: list[str], how: TextOptions) -> None:
    """Refuse a table with two columns of the text's name, as `_object` does."""
    if names.count(how.text_field) > 1:
        problem = f"{path} has two columns {how.text_field!r}"
        raise _Unreadable("unreadable file", problem, expected="one column of this name")


def _jsonl(path: Path, how: TextOptions) -> Rows:
    for number, line in enumerate(_text(path, how).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=partial(_object, field=how.text_field))
            row.keys()
        except (ValueError, RecursionError, AttributeError) as error:
            problem = f"{path}, line {number} is no JSON object that can be read: {reason(error)}"
            row = _Unreadable("line that is no JSON object", problem)
        yield number, row


def _json(path: Path, how: TextOptions) -> Rows:
    try:
        rows = json.loads(_text(path, how), object_pairs_hook=partial(_object, field=how.text_field))
    except (ValueError, RecursionError) as error:
        if str(error).startswith("Extra data"):
            yield from _jsonl(path, how)
            return
        problem = f"{path} holds no JSON that can be read: {reason(error)}"
        raise _Unreadable("unreadable file", problem) from error
    rows = [rows] if isinstance(rows, dict) else rows
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise _Unreadable(
            "unreadable file", f"{path} holds other JSON", expected="a list of objects, or one a line"
        )
    yield from enumerate(rows, start=1)


def _csv(path: Path, how: TextOptions) -> Rows:
    before = csv.field_size_limit(sys.maxsize)
    delimiter = "\t" if suffixes(path)[0] == ".tsv" else ","
    lines = csv.reader(io.StringIO(_text(path, how), newline=""), delimiter=delimiter, strict=True)
    try:
        names = next(lines, [])
        _check_names(path, names, how)
        for row in filter(None, lines):
            value: Any = dict(zip(names, row, strict=False))
            if any(row[len(names) :]):
                # Otherwise a text that is not quoted would end at its first comma.
                value = _Unreadable(
                    "row with more fields than the header",
                    f"{path}, line {lines.line_num} has {len(row)} fields, and the header {len(names)}",
                    expected="a text with separators in quotes",
                )
            yield lines.line_num, value
    except csv.Error as error:
        problem = f"{path}, line {lines.line_num}: {error}"
        raise _Unreadable("unreadable file", problem, expected="CSV") from error
    finally:
        csv.field_size_limit(before)


def _parquet(path: Path, how: TextOptions) -> Rows:
    from lengthwise.versions import need

    need("pyarrow")
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        if how.text_field not in (names := table.schema_arrow.names):
            # No row has the field: one row without values is enough for the message.
            yield 1, dict.fromkeys(names)
            return
        _check_names(path, names, how)
        batches = table.iter_batches(columns=[how.text_field])
        yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        problem = f"{path} is not a Parquet file that can be read: {reason(error)}"
        raise _Unreadable("unreadable file", problem) from error


TEXTS = (".txt", ".md")
READERS: dict[str, Callable[[Path, TextOptions], Rows]] = {
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
    kind, compressed = suffixes(path)
    return kind in TEXTS or (kind in READERS and not (kind == ".parquet" and compressed))


def read_files(path: Path, how: TextOptions) -> tuple[dict[str, Any], Counter[str]]:
    """The values of a file, or of all files in a folder and below: text, or messages; and what is left out.

    UsageError: no file that is read, or one, or a row, that cannot be and is not skipped; an unused option.
    """
    if path.is_dir():
        from lengthwise.text.folders import files_in

        files, left_out = files_in(path, is_text_file, suffixes=SUFFIXES)
    elif path.is_file() and is_text_file(path):
        files, left_out = {path.name: path}, Counter[str]()
    else:
        # Reading a pipe or a device may never end.
        raise UsageError(
            f"{path} is not a regular file of text",
            expected=f"one of: {SUFFIXES}, or a folder",
            fix="unpack it, or give it the suffix of what it holds",
        )
    kinds = {suffixes(file)[0] for file in files.values()}
    used = {"split", "skip_unreadable", *["text_field"] * any(kinds & READERS.keys())}
    used |= {"encoding"} if kinds != {".parquet"} else set()
    how.check_used(path, f"made of {', '.join(sorted(kinds))} files", used)
    found: dict[str, Any] = {}
    for name, file in files.items():
        found |= readable(_documents(name, file, how), how, left_out)
    return found, left_out


def _documents(name: str, file: Path, how: TextOptions) -> Iterator[tuple[str, Any]]:
    kind = suffixes(file)[0]
    if kind in TEXTS:
        text = _text(file, how)
        if _holds_rows(text):
            logger.warning(
                "%s holds JSON lines, and is read as plain text; name it .jsonl for its rows", file
            )
        yield name, text
        return
    unit, number = "row" if kind in (".json", ".parquet") else "line", 0
    try:
        for number, row in READERS[kind](file, how):
            yield f"{name}:{number}", text_of(row, how.text_field, where=f"{file}, {unit} {number}")
    except _Unreadable as error:
        # The rows before it are read.
        error.kind = f"the rest of {name} from {unit} {number + 1} on" if number else error.kind
        raise


def _holds_rows(text: str) -> bool:
    """Whether the first lines of a text are JSON objects."""
    lines = [*itertools.islice(filter(str.strip, io.StringIO(text)), 3)]
    try:
        return bool(lines) and all(line.startswith("{") and json.loads(line) for line in lines)
    except (ValueError, RecursionError):
        return False


def readable(
    documents: Iterable[tuple[str, Any]], how: TextOptions, left_out: Counter[str]
) -> Iterator[tuple[str, Any]]:
    """The documents without those that are `_Unreadable`: they are counted, or raised unless they may be skipped."""
    try:
        for own, value in documents:
            if not isinstance(value, _Unreadable):
                yield own, value
            elif how.skip_unreadable:
                left_out[value.kind] += 1
            else:
                raise value
    except _Unreadable as error:
        if not how.skip_unreadable:
            raise
        left_out[error.kind] += 1


def text_of(row: Any, field: str, *, where: str) -> Any:
    """The text in a field of a row, "" for null, or a list of messages; an `_Unreadable` for something else."""
    if isinstance(row, _Unreadable):
        return row
    if field not in row:
        return _Unreadable(
            f"row without {field!r}",
            f"{where} has no field {field!r}",
            expected=nearest(field, (str(name)[:_NAME] for name in row)),
            fix="give --text-field",
        )
    value = row[field]
    roles = isinstance(value, list) and all(isinstance(each, dict) and "role" in each for each in value)
    chat: list[Any] | None = value if roles else None
    if isinstance(value, str) and (half := _HALF.search(value)):
        return _Unreadable(
            "row with half of a surrogate pair",
            f"{where}: {field!r} has half of a surrogate pair, {half[0]!r}",
            expected="text that can be written as UTF-8",
        )
    wrong = next((n for n, each in enumerate(chat or (), start=1) if not has_content(each)), 0)
    if wrong:
        return _Unreadable(
            "row with a message without content",
            f"{where}: message {wrong} of {field!r} has no text as its content",
            expected="messages with role and content",
        )
    if isinstance(value, str) or chat is not None or value is None:
        return value or ""
    return _Unreadable(
        f"row whose {field!r} is no text",
        f"{where}: {field!r} is a {type(value).__name__}, not text",
        expected="text, or messages with role and content",
        fix="give another --text-field",
    )
