"""LongBench-E's rows: from the official jsonl files in a folder, or from the hub, each checked."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError

HUB = "THUDM/LongBench"

# What a gold answer must contain for its metric to find it.
_ANSWERS = {"number_share": r"^\d+$", "paragraph_share": r"Paragraph (\d+)"}
# Field, and what its value must be.
_FIELDS: tuple[tuple[str, type], ...] = (("input", str), ("context", str), ("answers", list), ("length", int))


def read_rows(name: str, source: str | None, *, metric: str) -> list[dict[str, Any]]:
    """The rows of a data set, from `<source>/<name>_e.jsonl` or, without a source, from the hub.

    Args:
        name: the data set.
        source: the folder of its file, or of the folder `data` with it.
        metric: its score, which says what a gold answer must contain.

    Raises:
        MissingError: no such file, or the hub cannot be reached.
        UsageError: a row that is not in the official format; file and line are named.
    """
    if source is None:
        return _from_hub(name, metric)
    folder = Path(source)
    path = next(
        (one for one in (folder / f"{name}_e.jsonl", folder / "data" / f"{name}_e.jsonl") if one.is_file()),
        None,
    )
    if path is None:
        raise MissingError(
            f"there is no {name}_e.jsonl in {source}",
            expected="the folder of LongBench's jsonl files (data.zip of the data set on the hub)",
        )
    return _rows_of(path.read_bytes(), metric, where=str(path))


def _rows_of(content: bytes, metric: str, *, where: str) -> list[dict[str, Any]]:
    """The checked rows of a jsonl file."""
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UsageError(f"{where}, line {number} is not JSON: {error}") from error
            rows.append(checked_row(row, metric, where=f"{where}, line {number}"))
    if not rows:
        raise UsageError(f"{where} holds no rows")
    return rows


def checked_row(row: Any, metric: str, *, where: str) -> dict[str, Any]:
    """The row if it is in the official format.

    Raises:
        UsageError: it is not; `where` is named.
    """
    expected = "an object with input, context, answers (a list of texts), length and all_classes"
    if not isinstance(row, dict):
        raise UsageError(f"{where} is a {type(row).__name__}", expected=expected)
    for field, kind in _FIELDS:
        if field not in row:
            raise UsageError(f"{where} has no field {field!r}", expected=expected)
        if not isinstance(row[field], kind) or isinstance(row[field], bool):
            raise UsageError(
                f"{where}: the field {field!r} is a {type(row[field]).__name__}", expected=expected
            )
    if not _texts(row["answers"]):
        raise UsageError(f"{where}: the field 'answers' is {row['answers']!r}", expected=expected)
    if metric == "class_match" and not _texts(row.get("all_classes")):
        raise UsageError(f"{where} has no field 'all_classes'", expected="the class names, for trec")
    pattern = _ANSWERS.get(metric)
    for answer in row["answers"]:
        if pattern is not None and not re.search(pattern, answer):
            raise UsageError(
                f"{where}: the answer {answer!r} can never be right", expected=f"a text with {pattern}"
            )
    return row


def _texts(value: Any) -> bool:
    """Whether it is a list of texts, not empty."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, str) for one in value)


def _from_hub(name: str, metric: str) -> list[dict[str, Any]]:
    from huggingface_hub import hf_hub_download

    try:
        archive = hf_hub_download(HUB, "data.zip", repo_type="dataset")
    except Exception as error:
        # The hub library has changed its HTTP library more than once, so no error class of theirs is named.
        raise MissingError(
            f"LongBench cannot be downloaded from the hub: {(str(error) or type(error).__name__).splitlines()[0]}",
            fix=f"on a machine with the hub: hf download --repo-type dataset {HUB}; then --data FOLDER",
        ) from error
    return rows_of_archive(Path(archive), name, metric=metric)


def rows_of_archive(archive: Path, name: str, *, metric: str) -> list[dict[str, Any]]:
    """The rows of a data set in the official data.zip; `metric` as in `read_rows`.

    Raises:
        UsageError: no such file in it, or a row that is not in the official format.
    """
    member = f"data/{name}_e.jsonl"
    with zipfile.ZipFile(archive) as files:
        if member not in files.namelist():
            raise UsageError(f"{archive} holds no {member}", expected="LongBench's data.zip")
        content = files.read(member)
    return _rows_of(content, metric, where=f"{archive}, {member}")
