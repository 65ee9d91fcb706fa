"""`load_corpus`: from what a user writes to documents."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.text import books
from lengthwise.text.corpus import Corpus, Split, check_split, split_by_hash
from lengthwise.text.files import TABLE_SUFFIXES, TEXT_SUFFIXES, read_path
from lengthwise.text.hub import HUB_PREFIX, load_hub, parse_hub


@dataclass(frozen=True)
class EmbeddedCorpus:
    """A corpus known by name, as `lengthwise ls` shows it."""

    name: str
    description: str
    licence: str
    install: str
    load: Callable[[Split], Corpus]


EMBEDDED_CORPORA: dict[str, EmbeddedCorpus] = {
    "books": EmbeddedCorpus(
        name="books",
        description="King James Bible (66 books) and Shakespeare (38 plays), 2.6M tokens, 104 documents",
        licence="texts in the public domain; packages MIT",
        install=books.INSTALL,
        load=books.load_books,
    ),
}


def load_corpus(spec: str, *, split: Split = "test", text_field: str = "text") -> Corpus:
    """Load texts by name, path or hub id.

    Args:
        spec: "books"; a .txt or .md file or a folder of them; a .jsonl or .parquet file; a hub data set
            as `hf://owner/name[:config][@split]` (or `owner/name` if there is no such path), where a
            local folder in the hub's layout may stand for `owner/name`.
        split: the held-out documents, the others, or all. `Corpus.split_rule` says how they were chosen.
        text_field: the column that holds the text, for tables and hub data sets.

    Raises:
        UsageError: an unknown name, split or field, or text that cannot be read.
        MissingError: a file, package or data set that is not there.
    """
    check_split(split)
    if spec in EMBEDDED_CORPORA:
        return EMBEDDED_CORPORA[spec].load(split)
    if spec.startswith(HUB_PREFIX):
        return load_hub(parse_hub(spec), split=split, text_field=text_field)
    path = Path(spec).expanduser()
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


def _looks_like_path(spec: str) -> bool:
    return (
        spec.startswith((".", "/", "~", os.sep))
        or spec.endswith(("/", os.sep))
        or Path(spec).suffix.lower() in (*TEXT_SUFFIXES, *TABLE_SUFFIXES)
        or spec.count("/") > 1
    )
