"""Windows of tokens: fixed ones for measuring, random ones for training, none across documents; views of them."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lengthwise.errors import UsageError
from lengthwise.text.tokens import TokenDocument

if TYPE_CHECKING:
    from numpy.typing import NDArray

Bos = Literal["auto", "always", "never"]


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

    Each document is cut into slots from a random offset; the documents take turns in giving a window. The first k
    windows of a larger `count` are the windows of `count=k`.

    Args:
        documents: token documents; documents shorter than `length` are skipped.
        length: tokens in a window.
        count: how many; None means all.
        seed: of the offsets and of both orders.
        allow_fewer: return all windows if there are fewer than `count`.

    Raises:
        UsageError: no document is long enough, or there are fewer than `count` windows.
    """
    _check_length(documents, length)
    order = np.random.default_rng([seed, 0]).permutation(len(documents))
    starts = {index: _slots(documents[index], length, seed) for index in order}
    available = sum(len(slots) for slots in starts.values())
    if count is not None and count > available and not allow_fewer:
        raise UsageError(
            f"{count} windows of {length} tokens do not fit: the text holds {available} without overlap",
            fix="use fewer windows, a shorter length, or more text",
        )
    wanted = available if count is None else min(count, available)
    windows: list[Window] = []
    turn = 0
    while len(windows) < wanted:
        for index in order:
            if turn < len(starts[index]):
                start = int(starts[index][turn])
                document = documents[index]
                windows.append(Window(document.id, start, document.ids[start : start + length]))
        turn += 1
    return windows[:wanted]


def _slots(document: TokenDocument, length: int, seed: int) -> NDArray[np.int64]:
    # Seeded by the document's id, so its slots do not depend on other documents.
    rng = np.random.default_rng([seed, 1, zlib.crc32(document.id.encode())])
    slots, slack = divmod(len(document.ids), length)
    if slots == 0:
        return np.empty(0, dtype=np.int64)
    phase = rng.integers(slack + 1)
    return phase + length * rng.permutation(slots)


class WindowSampler:
    """Random training windows: `window(index, length)` depends on the seed, index and length alone.

    Every legal start of every document is equally likely, so long documents are seen in proportion.
    """

    def __init__(self, documents: Sequence[TokenDocument], *, seed: int = 0) -> None:
        self.documents = documents
        self.seed = seed
        self._sizes = np.array([len(document.ids) for document in documents], dtype=np.int64)

    def window(self, index: int, length: int) -> NDArray[np.int32]:
        """The `index`-th window, of `length` tokens.

        Raises:
            UsageError: no document has `length` tokens.
        """
        _check_length(self.documents, length)
        ends = np.cumsum(np.maximum(self._sizes - length + 1, 0))
        draw = np.random.default_rng([self.seed, 2, index]).integers(ends[-1])
        document = int(np.searchsorted(ends, draw, side="right"))
        start = int(draw - (ends[document - 1] if document else 0))
        return self.documents[document].ids[start : start + length]


def pack_documents(
    documents: Sequence[TokenDocument], *, eos_id: int | None, seed: int = 0
) -> list[TokenDocument]:
    """All documents in random order, each followed by `eos_id`, as one long document.

    For training only: windows of the result cross boundaries of documents.

    Raises:
        UsageError: `eos_id` is None.
    """
    if eos_id is None:
        raise UsageError(
            "packing needs an EOS token, and the tokenizer has none", fix="train without packing"
        )
    parts: list[NDArray[np.int32]] = []
    for index in np.random.default_rng([seed, 3]).permutation(len(documents)):
        parts += [documents[index].ids, np.array([eos_id], dtype=np.int32)]
    return [TokenDocument("packed", np.concatenate(parts))]


def _check_length(documents: Sequence[TokenDocument], length: int) -> None:
    longest = max((len(document.ids) for document in documents), default=0)
    if longest < length:
        raise UsageError(
            f"the text is too short: a window needs {length} tokens, the longest document has {longest}",
            fix="use a shorter length, or a longer text",
        )


def resolve_bos(tokenizer: Any, setting: Bos) -> int | None:
    """The BOS id at the start of every view, or None.

    Args:
        tokenizer: a transformers tokenizer.
        setting: "auto" follows the tokenizer's own behaviour on plain text; "always"; "never".

    Raises:
        UsageError: "always" with a tokenizer that has no BOS token.
    """
    bos_id = tokenizer.bos_token_id
    if setting == "always" and bos_id is None:
        raise UsageError(
            "bos is 'always', but the tokenizer has no BOS token", fix="use bos 'auto' or 'never'"
        )
    begins = setting == "always" or (setting == "auto" and tokenizer("a").input_ids[:1] == [bos_id])
    return bos_id if begins else None


def view(ids: NDArray[np.integer], start: int, length: int, bos_id: int | None) -> NDArray[np.int64]:
    """A copy of `ids[start : start + length]`, whose first token is replaced by `bos_id` if there is one.

    BOS replaces a token, so row r of a view is always token start + r, and the rows of two views of the same tokens
    correspond with and without BOS.
    """
    if start < 0 or start + length > len(ids):
        raise UsageError(f"a view of tokens {start} to {start + length} of a text of {len(ids)} tokens")
    tokens = np.array(ids[start : start + length], dtype=np.int64)
    if bos_id is not None and length > 0:
        tokens[0] = bos_id
    return tokens
