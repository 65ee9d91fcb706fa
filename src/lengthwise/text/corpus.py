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
