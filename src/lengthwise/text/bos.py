"""The one setting for the beginning-of-sequence token, and the views that it is put into."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from lengthwise.errors import UsageError, nearest

if TYPE_CHECKING:
    from numpy.typing import NDArray

Bos = Literal["auto", "always", "never"]


def resolve_bos(tokenizer: Any, setting: str) -> int | None:
    """The BOS id that every view starts with, or None.

    Args:
        tokenizer: a transformers tokenizer.
        setting: "auto" does what the tokenizer does by itself on plain text; "always"; "never".

    Raises:
        UsageError: an unknown setting, or "always" with a tokenizer that has no BOS token.
    """
    if setting == "never":
        return None
    bos_id = tokenizer.bos_token_id
    if setting == "always":
        if bos_id is None:
            raise UsageError(
                "bos is 'always', but the tokenizer has no BOS token", fix="use bos 'auto' or 'never'"
            )
        return bos_id
    if setting == "auto":
        if bos_id is None:
            return None
        ids = tokenizer("a").input_ids
        return bos_id if ids and ids[0] == bos_id else None
    raise UsageError(
        f"unknown bos setting {setting!r}", expected=nearest(setting, ("auto", "always", "never"))
    )


def view(ids: NDArray[np.integer], start: int, length: int, bos_id: int | None) -> NDArray[np.int64]:
    """A copy of `ids[start : start + length]`, whose first token is replaced by `bos_id` if there is one.

    Replaced, not put in front: row r of a view is always token start + r, so two views of the same tokens
    face each other row by row with and without BOS.
    """
    if start < 0 or start + length > len(ids):
        raise UsageError(f"a view of tokens {start} to {start + length} of a text of {len(ids)} tokens")
    tokens = np.array(ids[start : start + length], dtype=np.int64)
    if bos_id is not None and length > 0:
        tokens[0] = bos_id
    return tokens
