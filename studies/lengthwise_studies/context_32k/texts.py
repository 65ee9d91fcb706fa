"""The texts of the study as folders of .txt files: `python -m lengthwise_studies.context_32k.texts FOLDER`.

No document of `books` or `code` has 65,536 tokens. So documents that stand side by side are joined: the files of a
package, books of the Bible, plays by name. The held-out files of `code` are written too, because another version of
torch or transformers has other files.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from lengthwise.subjects import load
from lengthwise.text import load_corpus

MODEL = "qwen2.5-coder-0.5b"
LONG = 65_536 + 512
"""Tokens of a joined document: the longest context, with room for passages."""


def joined(documents: Mapping[str, str], tokenizer: Any, tokens: int) -> Iterator[tuple[str, str]]:
    """(id, text) of neighbours with the same first part of their ids, as many as give `tokens` tokens."""
    for package, names in groupby(documents, key=lambda name: name.partition("/")[0]):
        some: list[str] = []
        count = 0
        for name in names:
            some.append(name)
            count += len(tokenizer(documents[name], add_special_tokens=False).input_ids)
            if count >= tokens:
                yield (
                    f"{package}-{some[0].rpartition('/')[2]}-and-{len(some) - 1}-more",
                    _text(documents, some),
                )
                some, count = [], 0


def _text(documents: Mapping[str, str], names: list[str]) -> str:
    return "\n\n".join(documents[name].strip("\n") for name in names) + "\n"


def write(folder: Path, tokenizer: Any, tokens: int = LONG) -> None:
    """`code`, `code-joined` and `books-joined` below `folder`."""
    code, books = load_corpus("code").documents, load_corpus("books", split="all").documents
    texts = {
        "code": code.items(),
        "code-joined": joined(code, tokenizer, tokens),
        "books-joined": joined(books, tokenizer, tokens),
    }
    for name, documents in texts.items():
        for own, text in documents:
            path = folder / name / f"{own}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    write(parser.parse_args().folder, load(MODEL, device="cpu").tokenizer)
