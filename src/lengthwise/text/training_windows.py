"""Text as it is trained on: random windows, and documents packed into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import UsageError
from lengthwise.text.tokens import TokenDocument, check_length


class WindowSampler:
    """Random training windows: `window(index, length)` depends on the seed, index and length alone.

    Every legal start of every document is equally likely, so long documents are seen in proportion.
    """

    def __init__(self, documents: Sequence[TokenDocument], *, seed: int = 0) -> None:
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
    parts: list[NDArray[np.int32]] = []
    for index in np.random.default_rng([seed, 3]).permutation(len(documents)):
        parts += [documents[index].ids, np.array([eos_id], dtype=np.int32)]
    return [TokenDocument("packed", np.concatenate(parts))]
