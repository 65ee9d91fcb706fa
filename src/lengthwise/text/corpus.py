"""Corpora of documents, the unit of splits and resampling."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lengthwise.errors import UsageError, nearest

Split = Literal["test", "train", "all"]
SPLITS: tuple[Split, ...] = ("test", "train", "all")

TEST_SHARE = 0.1

EMPTY = "empty or null"
"""Why documents are left out of a corpus."""


@dataclass(frozen=True)
class Document:
    """One text. Its `id` is unique within the corpus and the same in every run."""

    id: str
    text: str

    def __post_init__(self) -> None:
        for part in (self.id, self.text):
            try:
                part.encode()
            except UnicodeEncodeError as error:
                raise UsageError(
                    f"{self.id!r}: character {error.start} of its "
                    f"{'name' if part is self.id else 'text'} is half of a pair: {part[error.start]!r}",
                    expected="text that can be written as UTF-8",
                ) from error


@dataclass(frozen=True)
class Corpus:
    """Documents of one source and split.

    `split_rule` says in words how the split was made; `fingerprint` is a hash of all ids and texts.
    `left_out` counts the documents that the source has and the corpus has not, by reason.
    """

    name: str
    documents: tuple[Document, ...]
    split: Split
    split_rule: str
    fingerprint: str
    left_out: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, documents: list[Document], *, split: Split, split_rule: str, empty: int = 0
    ) -> Corpus:
        """A corpus of the documents that hold text, with its fingerprint.

        `empty` documents were left out before.

        Raises:
            UsageError: no document holds text.
        """
        kept = tuple(document for document in documents if document.text.strip())
        if not kept:
            raise UsageError(
                f"{name} ({split} split) holds no text",
                expected="at least one document that is not empty",
                fix="give another file, another text field, or split 'all'",
            )
        empty += len(documents) - len(kept)
        return cls(name, kept, split, split_rule, _fingerprint(kept), {EMPTY: empty} if empty else {})


def left_out_note(left_out: Mapping[str, int], documents: int) -> list[str]:
    """The documents that give nothing to measure or train on, in words; `documents` are those with text."""
    if not left_out:
        return []
    counts = ", ".join(f"{count} {why}" for why, count in left_out.items())
    return [f"Documents left out of the text ({documents} have text): {counts}."]


def check_split(split: str) -> None:
    """Raise UsageError unless `split` is one of SPLITS."""
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}", expected=nearest(split, SPLITS))


def split_by_hash(name: str, documents: list[Document], split: Split) -> Corpus:
    """Hold out about one document in ten, those with the lowest hash of their id.

    The split of a document depends on its id alone, so it does not change when others are added. A corpus of one
    document is used as given.
    """
    with_text = [document for document in documents if document.text.strip()]
    empty = len(documents) - len(with_text)
    if split == "all":
        return Corpus.of(name, with_text, split=split, split_rule="all documents", empty=empty)
    if len(with_text) < 2:
        rule = "used as given: a single document"
        return Corpus.of(name, with_text, split=split, split_rule=rule, empty=empty)
    shares = [_hash_share(document.id) for document in with_text]
    # At least one document in each split.
    threshold = min(max(TEST_SHARE, min(shares)), sorted(shares)[-2])
    wanted = [
        document
        for document, share in zip(with_text, shares, strict=True)
        if (share <= threshold) == (split == "test")
    ]
    rule = f"by hash of the document id, about {TEST_SHARE:.0%} held out as test"
    return Corpus.of(name, wanted, split=split, split_rule=rule, empty=empty)


def _hash_share(document_id: str) -> float:
    digest = hashlib.sha256(document_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


def _fingerprint(documents: tuple[Document, ...]) -> str:
    digest = hashlib.sha256()
    for document in documents:
        for part in (document.id.encode(), document.text.encode()):
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
    return digest.hexdigest()
