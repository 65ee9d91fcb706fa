"""A large text, of which no more is tokenized than windows are wanted from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lengthwise.text.corpus import Corpus
from lengthwise.text.tokens import TokenDocuments, tokenize

FIRST = 8_000_000
"""Characters of the first part; each further one has four times as many."""
_DOCUMENTS = 32
"""Documents that a part is of at least, if there are so many."""


def token_parts(
    text: Corpus | TokenDocuments, tokenizer: Any, *, cache: bool, whole: bool
) -> Iterator[TokenDocuments]:
    """The text in tokens; of a large one first the beginnings of some documents, then of more and longer ones.

    `sample_windows` raises `MoreText` on a part that has too few. With `whole` there are no parts.
    """
    if isinstance(text, Corpus) and not whole:
        for part in _parts(text):
            found = tokenize(part, tokenizer, cache=cache)
            yield replace(found, corpus_fingerprint=text.fingerprint, more=True)
    yield tokenize(text, tokenizer, cache=cache)


def _parts(text: Corpus) -> Iterator[Corpus]:
    """Which documents a part has depends on their ids alone."""
    size, characters = sum(map(len, text.documents.values())), FIRST
    order = sorted(text.documents, key=lambda own: hashlib.sha256(own.encode()).digest())
    while size > 4 * characters:
        most, left, begun = characters // _DOCUMENTS, characters, set[str]()
        for own in order:
            if left > 0:
                begun.add(own)
                left -= min(len(text.documents[own]), most)
        some = {own: each[:most] for own, each in text.documents.items() if own in begun}
        if any(map(str.strip, some.values())):
            yield Corpus.of(text.name, some, split=text.split, split_rule=text.split_rule)
        characters *= 4


def part_note(documents: TokenDocuments | None) -> list[str]:
    """What was read of a text that is larger than the windows need."""
    if documents is None or not documents.more:
        return []
    read = f"{len(documents)} documents ({documents.total_tokens:,} tokens)"
    return [f"The windows are from the beginnings of {read}: they need no more of the text."]
