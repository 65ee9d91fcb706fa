"""Whether two tokenizers read a text alike: the same ids, and at most a BOS added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lengthwise.errors import UsageError
from lengthwise.text.corpus import Corpus
from lengthwise.text.tokens import TokenDocuments, added_tokens, encode
from lengthwise.text.windows import Window

_ROOM = 1.1
"""So many times the characters of its tokens are read of a document: a tokenizer may leave some out."""


def check_same_ids(
    one: Any, other: Any, corpus: Any, documents: TokenDocuments, windows: Sequence[Window]
) -> None:
    """Raise UsageError unless two tokenizers make the same ids of a text, and add no more than a BOS of their own.

    Each document is read up to its last window. `corpus` is the raw text, if there is one; `documents` are the text
    in tokens of the second.
    """
    if one is other:
        return
    ends: dict[str, int] = {}
    for window in windows:
        ends[window.document_id] = max(ends.get(window.document_id, 0), window.start + len(window.ids))
    for document in documents:
        if document.id not in ends:
            continue
        text = other.decode(document.ids[: ends[document.id]])
        if isinstance(corpus, Corpus):
            text = corpus.documents[document.id][: int(_ROOM * len(text))]
        ids, others = (encode([text], each)[0] for each in (one, other))
        if not np.array_equal(ids, others):
            raise other_ids(len(ids), len(others))
    added = [added_tokens(each) for each in (one, other)]
    plain = [
        (before if list(before) != [each.bos_token_id] else (), after)
        for each, (before, after) in zip((one, other), added, strict=True)
    ]
    if plain[0] != plain[1]:
        raise UsageError(
            f"the tokenizers put other special tokens around a text: {added[0]} and {added[1]}, before and after it",
            expected="none, or a BOS: a window of a text has at most a BOS",
        )


def other_ids(one: int, other: int) -> UsageError:
    """The error of two tokenizers that make so many tokens of the same text, but other ids."""
    return UsageError(
        f"the tokenizers make other ids of the same text ({one} and {other} tokens)",
        expected="one tokenizer: log-probabilities of other tokens cannot be compared",
        fix="compare answers: `lengthwise eval` of each with --out, then both runs",
    )
