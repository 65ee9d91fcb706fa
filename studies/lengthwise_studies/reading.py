"""What a measurement reads of a text that is long enough, for plans: without the text and without the model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from lengthwise.measure.measurement import Item, Measurement
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus, TokenDocument, TokenDocuments, tokenize

_DOCUMENTS = 64
_TOKENS = 1 << 20


def items_read(measurement: Measurement, *, trained: int | None, texts: int = 16) -> list[Item]:
    """The items of a measurement of a model that was trained for `trained` tokens; `texts` where it reads words."""
    model: Any = SimpleNamespace(
        name="a model", tokenizer=tiny_tokenizer(), trained_length=trained, max_positions=None
    )
    resolved = measurement.resolved(model, model)
    if measurement.reads == "tokens":
        ids = np.zeros(_TOKENS, dtype=np.int32)
        documents = tuple(TokenDocument(str(index), ids) for index in range(_DOCUMENTS))
        return resolved.items(model, TokenDocuments(documents, "zeros", "", ""), model)
    # A word has at least one token.
    words = tiny_text(getattr(resolved, "length", 1024) + 1024)
    corpus = {str(index): words for index in range(texts)}
    text = Corpus.of("words", corpus, split="all", split_rule="")
    return resolved.items(model, (text, tokenize(text, model.tokenizer, cache=False)), model)
