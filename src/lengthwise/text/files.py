"""Documents from a user's own files: text, Markdown, folders of them, JSON lines, Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from lengthwise.errors import UsageError, nearest
from lengthwise.text.corpus import Document

TEXT_SUFFIXES = (".txt", ".md")
TABLE_SUFFIXES = (".jsonl", ".parquet")


def read_path(path: Path, *, text_field: str) -> list[Document]:
    """The documents of a file or folder.

    A .txt or .md file is one document; a folder has one for each such file in it and below, sorted by
    path; .jsonl and .parquet have one for each row, taken from the column `text_field`.

    Raises:
        UsageError: another kind of file, a folder without text files, text that is not UTF-8, a damaged
            table, or a table without `text_field`.
    """
    if path.is_dir():
        return _read_folder(path)
    suffix = path.suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return [Document(path.name, _read_text(path))]
    if suffix == ".jsonl":
        return _read_jsonl(path, text_field)
    if suffix == ".parquet":
        return _read_parquet(path, text_field)
    raise UsageError(
        f"{path} is a {suffix or 'file without suffix'}, which is not read as text",
        expected="one of: " + ", ".join((*TEXT_SUFFIXES, *TABLE_SUFFIXES)) + ", or a folder",
    )


def _read_folder(folder: Path) -> list[Document]:
    paths = sorted(
        path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in TEXT_SUFFIXES
    )
    if not paths:
        raise UsageError(
            f"the folder {folder} has no {' or '.join(TEXT_SUFFIXES)} file in it or below",
            fix=f"name the file itself, or for a data set in the hub's layout use hf://{folder}",
        )
    return [Document(path.relative_to(folder).as_posix(), _read_text(path)) for path in paths]


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start}", fix="convert it to UTF-8"
        ) from error


def _read_jsonl(path: Path, text_field: str) -> list[Document]:
    documents: list[Document] = []
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UsageError(f"{path}, line {number} is not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise UsageError(f"{path}, line {number} is not a JSON object", expected='{"text": "..."} a line')
        text = field_of(row, text_field, where=f"{path}, line {number}")
        documents.append(Document(f"{path.name}:{number}", text))
    return documents


def _read_parquet(path: Path, text_field: str) -> list[Document]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        check_field(table.schema_arrow.names, text_field, where=str(path))
        column = table.read(columns=[text_field]).column(text_field)
    except pyarrow.ArrowException as error:
        raise UsageError(f"{path} is not a Parquet file that can be read: {error}") from error
    return [
        Document(f"{path.name}:{number}", as_text(value, text_field, where=f"{path}, row {number}"))
        for number, value in enumerate(column.to_pylist(), start=1)
    ]


def field_of(row: dict[str, object], text_field: str, *, where: str) -> str:
    """The text in one row; UsageError if the field is missing or is not text."""
    check_field(row, text_field, where=where)
    return as_text(row[text_field], text_field, where=where)


def check_field(fields: Iterable[str], text_field: str, *, where: str) -> None:
    """Raise UsageError unless `text_field` is one of `fields`."""
    names = list(fields)
    if text_field not in names:
        raise UsageError(
            f"{where} has no field {text_field!r}",
            expected=nearest(text_field, names) if names else None,
            fix="name the field that holds the text",
        )


def as_text(value: object, text_field: str, *, where: str) -> str:
    """`value` if it is text, "" for null; UsageError for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UsageError(f"{where}: the field {text_field!r} is a {type(value).__name__}, not text")
    return value
