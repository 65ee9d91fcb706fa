"""Checks that a loaded model is whole and spoken to in its own tokens."""

from __future__ import annotations

from typing import Any

from lengthwise.errors import MissingError, UsageError
from lengthwise.models.resolve import check_architecture  # noqa: F401  (its old place)


def check_loaded(info: dict[str, Any], name: str) -> None:
    """Raise MissingError if weights were not in the checkpoint and would be random."""
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if missing:
        shown = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
        raise MissingError(
            f"the checkpoint of {name} lacks weights of the model: {shown}",
            expected="every weight in the checkpoint (they would be random numbers)",
            fix="download the model again, or save it with its output head",
        )


def check_vocabulary(tokenizer: Any, vocab_size: int, name: str) -> None:
    """Raise UsageError if plain text can become ids that the model does not have.

    A vocabulary padded beyond the tokenizer is usual and fine. So are special tokens beyond the
    vocabulary: some text models ship the tokenizer of their multimodal relatives.
    """
    special = set(tokenizer.all_special_ids)
    beyond = [
        index
        for token, index in tokenizer.get_vocab().items()
        if index >= vocab_size and index not in special and not _is_special(tokenizer, index)
    ]
    if beyond:
        raise UsageError(
            f"the tokenizer of {name} has ids up to {max(beyond)}, the model a vocabulary of {vocab_size}",
            expected="the tokenizer that the model was trained with",
            fix="put the right tokenizer files beside the weights",
        )


def _is_special(tokenizer: Any, index: int) -> bool:
    added = tokenizer.added_tokens_decoder.get(index)
    return added is not None and added.special
