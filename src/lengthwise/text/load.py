"""`load_corpus`: from what a user writes to documents."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError, UsageError, nearest
from lengthwise.text import books
from lengthwise.text.corpus import Corpus, Document, Split, check_split, split_by_hash
from lengthwise.text.files import TABLE_SUFFIXES, TEXT_SUFFIXES, read_path
from lengthwise.text.hub import HUB_PREFIX, load_hub, parse_hub
from lengthwise.text.tokens import TokenDocuments, tokenize


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
