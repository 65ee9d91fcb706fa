"""Texts as documents: the unit that is split, sampled and resampled."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal

from lengthwise.errors import UsageError, nearest

Split = Literal["test", "train", "all"]
SPLITS: tuple[Split, ...] = ("test", "train", "all")

TEST_SHARE = 0.1


@dataclass(frozen=True)
class Document:
    """One text. `id` names it within its corpus and does not change between runs."""

    id: str
    text: str


@dataclass(frozen=True)
class Corpus:
    """Documents of one source and split.

    `split_rule` says in words how the split was made (or that the text is used as given);
    `fingerprint` is a hash of all ids and texts.
    """

    name: str
    documents: tuple[Document, ...]
    split: Split
    split_rule: str
    fingerprint: str

    @classmethod
    def of(cls, name: str, documents: list[Document], *, split: Split, split_rule: str) -> Corpus:
        """Make a corpus and its fingerprint.

        Raises:
            UsageError: there is no document with text in it.
        """
        kept = tuple(document for document in documents if document.text.strip())
        if not kept:
            raise UsageError(
                f"{name} ({split} split) holds no text",
                expected="at least one document that is not empty",
                fix="give another file, another text field, or split 'all'",
            )
        return cls(name, kept, split, split_rule, _fingerprint(kept))


def check_split(split: str) -> None:
    """Raise UsageError unless `split` is one of SPLITS."""
    if split not in SPLITS:
        raise UsageError(f"unknown split {split!r}", expected=nearest(split, SPLITS))


def split_by_hash(name: str, documents: list[Document], split: Split) -> Corpus:
    """About one document in ten is held out: those with the lowest hash of their id.

    A document's side depends on its id alone, so it stays there when others are added. A corpus of one
    document has nothing to hold out and is used as given.
    """
    with_text = [document for document in documents if document.text.strip()]
    if split == "all":
        return Corpus.of(name, with_text, split=split, split_rule="all documents")
    if len(with_text) < 2:
        return Corpus.of(name, with_text, split=split, split_rule="used as given: a single document")
    shares = [_hash_share(document.id) for document in with_text]
    # At least one document on either side, however few there are.
    threshold = min(max(TEST_SHARE, min(shares)), sorted(shares)[-2])
    wanted = [
        document
        for document, share in zip(with_text, shares, strict=True)
        if (share <= threshold) == (split == "test")
    ]
    rule = f"by hash of the document id, about {TEST_SHARE:.0%} held out as test"
    return Corpus.of(name, wanted, split=split, split_rule=rule)


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
