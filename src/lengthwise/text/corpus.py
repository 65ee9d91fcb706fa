"""Corpora: documents, the unit of splits and resampling, from a name, file, folder, table or hub data set."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from lengthwise.errors import MissingError, UsageError, nearest, reason
from lengthwise.files import named_path
from lengthwise.text.embedded_texts import EMBEDDED_CORPORA

Split = Literal["test", "train", "all"]

TEST_SHARE = 0.1

EMPTY = "empty or null"
"""Why documents are left out of a corpus."""
HUB_PREFIX = "hf://"
_HUB = re.compile(r"(?P<path>[^:@]*[^:@/]/?)(?::(?P<config>[^@]+))?(?:@(?P<split>.+))?")
_TEXTS = (".txt", ".md")
_SUFFIXES = (*_TEXTS, ".jsonl", ".parquet")


@dataclass(frozen=True)
class Corpus:
    """Documents of one source and split: the text of each by its id, which is the same in every run.

    `split_rule` says in words how the split was made; `fingerprint` is a hash of all ids and texts.
    `left_out` counts the documents that the source has and the corpus has not, by reason.
    """

    name: str
    documents: Mapping[str, str]
    split: Split
    split_rule: str
    fingerprint: str
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        name: str,
        documents: Mapping[str, str],
        *,
        split: Split,
        split_rule: str | None = None,
        left_out: Mapping[str, int] | None = None,
    ) -> Corpus:
        """A corpus of the documents that hold text, with its fingerprint.

        Without `split_rule`, `documents` are those of all splits. About one in ten is held out as test, those with
        the lowest hash of their id. The split of a document depends on its id alone, so it does not change when
        others are added. A corpus of one document is used as given.

        Raises:
            UsageError: no document holds text, or one cannot be written as UTF-8.
        """
        kept = {own: text for own, text in documents.items() if text.strip()}
        # Adding to a Counter drops what is zero.
        counts = Counter(left_out) + Counter({EMPTY: len(documents) - len(kept)})
        for own, text in kept.items():
            try:
                f"{own}{text}".encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"{own!r}: half of a surrogate pair, {error.object[error.start]!r}",
                    expected="text and name that can be written as UTF-8",
                ) from error
        if split_rule is None:
            kept, split_rule = _split_by_hash(kept, split)
        if not kept:
            raise UsageError(
                f"{name} ({split} split) holds no text",
                expected="at least one document that is not empty",
                fix="give another file, another text field, or split 'all'",
            )
        fingerprint = hashlib.sha256()
        for encoded in (part.encode() for document in kept.items() for part in document):
            fingerprint.update(len(encoded).to_bytes(8, "big"))
            fingerprint.update(encoded)
        return cls(name, kept, split, split_rule, fingerprint.hexdigest(), dict(counts))


def left_out_note(left_out: Mapping[str, int], documents: int) -> list[str]:
    """The documents that give nothing to measure or train on, in words; `documents` are those with text."""
    if not left_out:
        return []
    counts = ", ".join(f"{count} {why}" for why, count in left_out.items())
    return [f"Documents left out of the text ({documents} have text): {counts}."]


def _split_by_hash(documents: dict[str, str], split: Split) -> tuple[dict[str, str], str]:
    """The documents of a split, and its rule."""
    if split == "all":
        return documents, "all documents"
    if len(documents) < 2:
        return documents, "used as given: a single document"
    digests = {own: hashlib.sha256(own.encode()).digest() for own in documents}
    shares = {own: int.from_bytes(digest[:8], "big") / 2**64 for own, digest in digests.items()}
    # At least one document in each split.
    threshold = min(max(TEST_SHARE, min(shares.values())), sorted(shares.values())[-2])
    chosen = {own: text for own, text in documents.items() if (shares[own] <= threshold) == (split == "test")}
    return chosen, f"by hash of the document id, about {TEST_SHARE:.0%} held out as test"


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
        UsageError: an unknown name, split or field, a field of what has no columns, or text that cannot be read.
        MissingError: a file, package or data set that does not exist.
    """
    if split not in get_args(Split):
        raise UsageError(f"unknown split {split!r}", expected=nearest(split, get_args(Split)))
    path = named_path(spec, what="the text")
    embedded = EMBEDDED_CORPORA.get(spec)
    no_columns = embedded is not None or path.is_dir() or path.suffix.lower() in _TEXTS
    if no_columns and text_field != "text":
        raise UsageError(
            f"text_field is {text_field!r}, and {spec} has no columns", expected="a .jsonl or .parquet file"
        )
    if embedded is not None:
        documents, left_out = embedded.read(
            lambda own: split == "all" or f"{own}/".startswith(embedded.held_out) == (split == "test")
        )
        rule = "all documents" if split == "all" else embedded.split_rule
        return Corpus.of(spec, documents, split=split, split_rule=rule, left_out=left_out)
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


def _read_path(path: Path, text_field: str) -> dict[str, str]:
    """A document for each row of a table, or for each text file in a folder and below, sorted by path."""
    suffix = path.suffix.lower()
    if path.is_dir():
        # Unlike rglob, walk reports folders that cannot be read.
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
