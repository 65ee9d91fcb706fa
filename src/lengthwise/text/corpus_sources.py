"""`load_corpus`: from a name, file, folder, table or hub data set to documents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, get_args

from lengthwise.errors import MissingError, UsageError, nearest, reason
from lengthwise.files import named_path
from lengthwise.text.corpus import Corpus, Split
from lengthwise.text.embedded_texts import EMBEDDED_CORPORA, load_embedded
from lengthwise.text.tokens import TokenDocuments, tokenize

HUB_PREFIX = "hf://"
_HUB = re.compile(r"(?P<path>[^:@]*[^:@/]/?)(?::(?P<config>[^@]+))?(?:@(?P<split>.+))?")
_TEXTS = (".txt", ".md")
_SUFFIXES = (*_TEXTS, ".jsonl", ".parquet")

TextLike = str | Path | Corpus | Sequence[str]
"""A name or path that `load_corpus` takes, a corpus, or texts."""


def load_corpus(spec: str, *, split: Split = "test", text_field: str = "text") -> Corpus:
    """Load texts by name, path or hub id.

    Args:
        spec: "books" or "code"; a .txt or .md file or a folder of them; a .jsonl or .parquet file; a hub data set
            as `hf://owner/name[:config][@split]` (or `owner/name` if there is no such path). A local folder
            in the hub's layout may replace `owner/name`.
        split: the held-out documents, the others, or all. `Corpus.split_rule` says how they were chosen.
        text_field: the column that holds the text, for tables and hub data sets.

    Raises:
        UsageError: an unknown name, split or field, or text that cannot be read.
        MissingError: a file, package or data set that does not exist.
    """
    if split not in get_args(Split):
        raise UsageError(f"unknown split {split!r}", expected=nearest(split, get_args(Split)))
    if spec in EMBEDDED_CORPORA:
        return load_embedded(spec, split)
    path = named_path(spec, what="the text")
    if path.exists():
        return Corpus.of(spec, _read_path(path, text_field), split=split)
    known_suffix = path.suffix.lower() in _SUFFIXES
    if spec.startswith(HUB_PREFIX) or (re.fullmatch(r"\w[^/]*/[^/]+", spec) and not known_suffix):
        return _load_hub(spec.removeprefix(HUB_PREFIX), split, text_field)
    if "/" in spec or known_suffix:
        raise MissingError(f"there is no file or folder {spec}", fix="check the path")
    raise UsageError(
        f"unknown corpus {spec!r}: it is not embedded and there is no such path",
        expected=nearest(spec, EMBEDDED_CORPORA),
        fix="give a file, a folder or hf://owner/name",
    )


def as_corpus(text: TextLike, *, split: Split = "test") -> Corpus:
    """A corpus as it is; the one of a name or path; or one of a list of texts, which are used as given.

    Raises:
        UsageError, MissingError: as `load_corpus`; or it is something else.
    """
    if isinstance(text, Corpus):
        return text
    if isinstance(text, str | Path):
        return load_corpus(str(text), split=split)
    if not isinstance(text, Sequence) or not all(isinstance(each, str) for each in text):
        raise UsageError(
            f"a {type(text).__name__} is not a text",
            expected="a name or path, a Corpus, TokenDocuments, or a list of strings",
        )
    documents = {f"text:{number}": each for number, each in enumerate(text, start=1)}
    return Corpus.of("texts", documents, split="all", split_rule="used as given")


def as_documents(text: TextLike | TokenDocuments, tokenizer: Any, *, split: Split = "test") -> TokenDocuments:
    """Token documents as they are; anything that `as_corpus` takes in the tokens of `tokenizer`."""
    if isinstance(text, TokenDocuments):
        return text
    return tokenize(as_corpus(text, split=split), tokenizer, cache=isinstance(text, str | Path))


def _read_path(path: Path, text_field: str) -> dict[str, str]:
    """A document for each row of a table, or for each text file in a folder and below, sorted by path."""
    suffix = path.suffix.lower()
    if path.is_dir():
        # Unlike rglob, walk tells of folders that cannot be read.
        files = (Path(inner, name) for inner, _, names in os.walk(path, onerror=_refuse) for name in names)
        texts = sorted(file for file in files if file.suffix.lower() in _TEXTS and file.is_file())
        if not texts:
            raise UsageError(
                f"the folder {path} has no {' or '.join(_TEXTS)} file in it or below",
                fix=f"name the file itself, or use hf://{path} for a data set in the hub's layout",
            )
        return {file.relative_to(path).as_posix(): _read_text(file) for file in texts}
    # Reading a pipe or a device may never end.
    if not path.is_file() or suffix not in _SUFFIXES:
        expected = f"one of: {', '.join(_SUFFIXES)}, or a folder"
        raise UsageError(f"{path} is not a regular file of text", expected=expected)
    if suffix in _TEXTS:
        return {path.name: _read_text(path)}
    read = _jsonl_column if suffix == ".jsonl" else _parquet_column
    return _documents(read(path, text_field), text_field, ids=path.name, where=str(path))


def _refuse(error: OSError) -> NoReturn:
    raise UsageError(f"cannot read a folder: {error}") from error


def _read_text(path: Path) -> str:
    """The text of a file without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path} as UTF-8 text: {error}") from error


def _jsonl_column(path: Path, text_field: str) -> Iterator[tuple[int, object]]:
    """(line, value) of every line that is not blank."""
    for number, line in enumerate(_read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            row = json.loads(line)
            names = list(row.keys())
        except (ValueError, RecursionError, AttributeError) as error:
            raise UsageError(f"{where} is no JSON object that can be read: {error}") from error
        _check_field(names, text_field, where=where)
        yield number, row[text_field]


def _parquet_column(path: Path, text_field: str) -> Iterable[tuple[int, object]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.ParquetFile(path)
        _check_field(table.schema_arrow.names, text_field, where=str(path))
        return enumerate(table.read(columns=[text_field]).column(text_field).to_pylist(), start=1)
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a Parquet file that can be read: {error}") from error


def _check_field(names: list[str], text_field: str, *, where: str) -> None:
    if text_field not in names:
        raise UsageError(f"{where} has no field {text_field!r}", expected=nearest(text_field, names))


def _documents(
    rows: Iterable[tuple[int, object]], text_field: str, *, ids: str, where: str
) -> dict[str, str]:
    """A document for each (number, value); null is an empty one."""
    documents = {}
    for number, value in rows:
        if not isinstance(value, str | None):
            raise UsageError(f"{where}, row {number}: {text_field!r} is a {type(value).__name__}, not text")
        documents[f"{ids}:{number}"] = value or ""
    return documents


def _load_hub(spec: str, split: Split, text_field: str) -> Corpus:
    """One document for each row of the data set `owner/name[:config][@split]`.

    A split named in the spec is used as given. Otherwise the data set's own held-out split is "test" and
    its train split "train"; a data set with one split is split by hash like a file.
    """
    from datasets import load_dataset
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    parts = _HUB.fullmatch(spec)
    if parts is None:
        raise UsageError(f"{spec!r} names no data set", expected="hf://owner/name[:config][@split]")
    name, chosen = parts["path"], parts["split"]
    path = Path(name).expanduser()
    try:
        splits: Any = load_dataset(str(path) if path.is_dir() else name, parts["config"])
    except (DatasetNotFoundError, ConnectionError, FileNotFoundError) as error:
        raise MissingError(
            f"the data set {name!r} cannot be loaded: {reason(error)}",
            expected="a data set on the hub, in the local hub cache, or a folder in the hub's layout",
            fix=f"check the name; to fetch it: hf download --repo-type dataset {name}",
        ) from error
    except (ValueError, DatasetGenerationError) as error:
        # The message of `datasets` is "An error occurred"; the cause is the actual problem.
        problem = f"the data set {spec!r} cannot be read: {reason(error.__cause__ or error)}"
        raise UsageError(problem) from error
    rule = None if chosen is None else f"used as given: split {chosen!r}"
    held_out = next((known for known in ("test", "validation") if known in splits), None)
    if chosen is None and split != "all" and held_out is not None and "train" in splits:
        chosen = held_out if split == "test" else "train"
        rule = f"the data set's own split {chosen!r}"
    elif chosen is not None and chosen not in splits:
        raise UsageError(f"{name} has no split {chosen!r}", expected=nearest(chosen, splits))
    documents: dict[str, str] = {}
    for each in splits if chosen is None else [chosen]:
        rows, where = splits[each], HUB_PREFIX + spec
        _check_field(rows.column_names, text_field, where=where)
        documents |= _documents(enumerate(rows[text_field], start=1), text_field, ids=each, where=where)
    return Corpus.of(HUB_PREFIX + spec, documents, split=split, split_rule=rule)
