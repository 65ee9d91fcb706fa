"""Whether two tokenizers read a text alike: the same ids, and at most a BOS added."""

from __future__ import annotations

import itertools
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.text.corpus import Corpus
from lengthwise.text.tokens import TokenDocuments, added_tokens

_DOCUMENTS, _CHARACTERS = 8, 20_000


def check_same_ids(one: Any, other: Any, corpus: Any, documents: TokenDocuments) -> None:
    """Raise UsageError unless two tokenizers make the same ids of a text, and add no more than a BOS of their own.

    `corpus` is the raw text, if there is one; `documents` are the text in tokens of the first.
    """
    if isinstance(corpus, Corpus):
        some = itertools.islice(corpus.documents.values(), _DOCUMENTS)
        texts = [text[:_CHARACTERS] for text in some]
    else:
        texts = [one.decode(document.ids[: _CHARACTERS // 4]) for document in documents[:_DOCUMENTS]]
    for text in texts:
        made = [list(each(text, add_special_tokens=False).input_ids) for each in (one, other)]
        if made[0] != made[1]:
            raise other_ids(*map(len, made))
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
