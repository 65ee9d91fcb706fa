"""Chats: documents of messages, which the tokenizer's template makes a text."""

from __future__ import annotations

import json
from typing import Any

from lengthwise.errors import UsageError, reason
from lengthwise.text.corpus import Corpus


def rendered(corpus: Corpus, tokenizer: Any) -> Corpus:
    """The corpus as the model reads it: each chat as the tokenizer's template writes it.

    Raises:
        UsageError: the tokenizer has no template, or the template refuses a chat.
    """
    if not corpus.chat:
        return corpus
    documents: dict[str, str] = {}
    for own, messages in corpus.documents.items():
        try:
            documents[own] = tokenizer.apply_chat_template(json.loads(messages), tokenize=False)
        # The template is a program of the model's authors.
        except Exception as error:
            raise UsageError(
                f"the messages of {own} do not become a text: {reason(error)}",
                expected="a tokenizer with a chat template that takes these messages",
                fix="use the tokenizer of a chat model, or a column of plain text (--text-field)",
            ) from error
    return Corpus.of(
        corpus.name,
        documents,
        split=corpus.split,
        split_rule=corpus.split_rule,
        left_out=corpus.left_out,
        whole=corpus.whole,
    )
