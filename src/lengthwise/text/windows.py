"""Windows of documents: without overlap to measure, at random places to train, and their views.

Training may join documents first.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import UsageError, require, require_integer, require_kind
from lengthwise.text.tokens import MoreText, TokenDocument, TokenDocuments


@dataclass(frozen=True)
class Window:
    """Tokens `start` to `start + len(ids)` of one document."""

    document_id: str
    start: int
    ids: NDArray[np.int32]


def sample_windows(
    documents: Sequence[TokenDocument],
    length: int,
    *,
    count: int | None = None,
    seed: int = 0,
    allow_fewer: bool = False,
) -> list[Window]:
    """Windows of `length` tokens that do not overlap, over as many documents as possible.

    Each document that is long enough is cut into slots from a random offset; the documents take turns in giving a
    window. The first k windows of a larger `count` are the windows of `count=k`, and None gives all. `seed` draws the
    offsets and both orders. With `allow_fewer`, fewer than `count` are no error.

    Raises:
        UsageError: no document is long enough, or there are fewer than `count` windows.
        MoreText: the same of a part of a text.
    """
    if count is not None:
        require_integer("the number of windows", count, low=1, unit="windows")
    _check(documents, seed)
    longest = max((len(document.ids) for document in documents), default=0)
    more = getattr(documents, "more", False)
    if more and longest < length:
        raise MoreText
    check_length(documents, length, longest)
    order = np.random.default_rng([seed, 0]).permutation(len(documents))
    sizes = [len(document.ids) // length for document in documents]
    fitting = sum(sizes)
    if more and (count is None or count > fitting):
        raise MoreText
    if count is not None and count > fitting and not allow_fewer:
        raise UsageError(
            f"{count} windows of {length} tokens do not fit: the text holds {fitting} without overlap",
            fix="use fewer windows, a shorter length, or more text",
        )
    # Those of documents that give a window alone: a text may have 300,000.
    slots = cache(lambda index: _slots(documents[index], length, seed))
    places = (
        (documents[index], int(slots(index)[turn]))
        for turn in range(max(sizes))
        for index in order
        if turn < sizes[index]
    )
    return [
        Window(document.id, start, document.ids[start : start + length])
        for document, start in islice(places, count)
    ]


def _slots(document: TokenDocument, length: int, seed: int) -> NDArray[np.int64]:
    # Seeded by the document's id, so its slots do not depend on other documents.
    rng = np.random.default_rng([seed, 1, zlib.crc32(document.id.encode())])
    slots, slack = divmod(len(document.ids), length)
    phase = rng.integers(slack + 1)
    return phase + length * rng.permutation(slots)


def _check(documents: Sequence[TokenDocument], seed: int) -> None:
    require_integer("seed", seed, low=0, unit="a seed")
    # Of a text that was tokenized all are documents; it may have 300,000.
    for each in () if isinstance(documents, TokenDocuments) else documents:
        require_kind("a document", each, TokenDocument, "token documents: tokenize(text, tokenizer)")


def check_length(documents: Sequence[TokenDocument], length: int, longest: int) -> None:
    """Raise UsageError unless a document, of which the longest has so many tokens, holds a window of this length."""
    require_integer("the length of windows", length, low=1)
    if longest < length:
        part = getattr(documents, "part", "")
        raise UsageError(
            f"the text is too short: a window needs {length} tokens, the longest document has {longest}"
            + (f", and {part}" if part else ""),
            fix="use a shorter length, or a longer text" + (", or --split all" if part else ""),
        )


def view(ids: NDArray[np.integer], start: int, length: int, bos_id: int | None) -> NDArray[np.int64]:
    """A copy of `ids[start : start + length]`, whose first token is replaced by `bos_id` if there is one.

    BOS replaces a token, so row r of a view is always token start + r, and the rows of two views of the same tokens
    correspond with and without BOS.
    """
    require_integer("start", start, low=0)
    require_integer("length", length, low=0)
    if start + length > len(ids):
        raise UsageError(f"a view of tokens {start} to {start + length} of a text of {len(ids)} tokens")
    tokens = np.array(ids[start : start + length], dtype=np.int64)
    if bos_id is not None and length > 0:
        tokens[0] = bos_id
    return tokens


class WindowSampler:
    """Random training windows: `window(index, length)` depends on the seed, index and length alone.

    Every legal start of every document is equally likely, so long documents are seen in proportion.
    """

    def __init__(self, documents: Sequence[TokenDocument], *, seed: int = 0) -> None:
        _check(documents, seed)
        self.documents = documents
        self.seed = seed
        self._sizes = np.array([len(document.ids) for document in documents], dtype=np.int64)
        self._longest = int(self._sizes.max(initial=0))
        self._ends: tuple[int | None, NDArray[np.int64]] = None, self._sizes

    def window(self, index: int, length: int) -> NDArray[np.int32]:
        """The `index`-th window, of `length` tokens; UsageError if no document has so many."""
        # All windows of a step have one length, so one is kept.
        if self._ends[0] != length:
            check_length(self.documents, length, self._longest)
            self._ends = length, np.cumsum(np.maximum(self._sizes - length + 1, 0))
        ends = self._ends[1]
        draw = np.random.default_rng([self.seed, 2, index]).integers(ends[-1])
        document = int(np.searchsorted(ends, draw, side="right"))
        start = int(draw - (ends[document - 1] if document else 0))
        return self.documents[document].ids[start : start + length]


def pack_documents(
    documents: Sequence[TokenDocument], *, eos_id: int | None, seed: int = 0
) -> list[TokenDocument]:
    """All documents in random order, each followed by `eos_id`, as one long document.

    For training only: windows of the result cross boundaries of documents. UsageError if `eos_id` is None.
    """
    if eos_id is None:
        raise UsageError(
            "packing needs an EOS token, and the tokenizer has none", fix="train without packing"
        )
    require_integer("eos_id", eos_id, low=0, unit="a token")
    _check(documents, seed)
    require(
        len(documents) > 0, "there are no documents to pack", "token documents: tokenize(text, tokenizer)"
    )
    parts: list[NDArray[np.int32]] = []
    for index in np.random.default_rng([seed, 3]).permutation(len(documents)):
        parts += [documents[index].ids, np.array([eos_id], dtype=np.int32)]
    return [TokenDocument("packed", np.concatenate(parts))]
