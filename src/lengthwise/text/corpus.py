"""Corpora of documents, the unit of splits and resampling."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lengthwise.errors import UsageError

Split = Literal["test", "train", "all"]

TEST_SHARE = 0.1

EMPTY = "empty or null"
"""Why documents are left out of a corpus."""


@dataclass(frozen=True)
class Document:
    """One text. Its `id` is unique within the corpus and the same in every run."""

    id: str
    text: str

    def __post_init__(self) -> None:
        try:
            f"{self.id}{self.text}".encode()
        except UnicodeEncodeError as error:
            raise UsageError(
                f"{self.id!r}: half of a surrogate pair, {error.object[error.start]!r}",
                expected="text and name that can be written as UTF-8",
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
        cls,
        name: str,
        documents: list[Document],
        *,
        split: Split,
        split_rule: str,
        left_out: Mapping[str, int] | None = None,
    ) -> Corpus:
        """A corpus of the documents that hold text, with its fingerprint.

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
        # Adding to a Counter drops what is zero.
        counts = Counter(left_out) + Counter({EMPTY: len(documents) - len(kept)})
        return cls(name, kept, split, split_rule, _fingerprint(kept), dict(counts))


def left_out_note(left_out: Mapping[str, int], documents: int) -> list[str]:
    """The documents that give nothing to measure or train on, in words; `documents` are those with text."""
    if not left_out:
        return []
    counts = ", ".join(f"{count} {why}" for why, count in left_out.items())
    return [f"Documents left out of the text ({documents} have text): {counts}."]


def split_by_hash(name: str, documents: list[Document], split: Split) -> Corpus:
    """Hold out about one document in ten, those with the lowest hash of their id.

    The split of a document depends on its id alone, so it does not change when others are added. A corpus of one
    document is used as given.
    """
    found = [document for document in documents if document.text.strip()]
    left_out = {EMPTY: len(documents) - len(found)}
    if split == "all":
        rule = "all documents"
    elif len(found) < 2:
        rule = "used as given: a single document"
    else:
        rule = f"by hash of the document id, about {TEST_SHARE:.0%} held out as test"
        shares = {document.id: _hash_share(document.id) for document in found}
        # At least one document in each split.
        threshold = min(max(TEST_SHARE, min(shares.values())), sorted(shares.values())[-2])
        found = [document for document in found if (shares[document.id] <= threshold) == (split == "test")]
    return Corpus.of(name, found, split=split, split_rule=rule, left_out=left_out)


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
