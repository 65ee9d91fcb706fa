"""What is known of a model before its weights are loaded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lengthwise.files import is_url
from lengthwise.models.loading import open_model
from lengthwise.models.plan import model_skeleton
from lengthwise.models.position_limits import max_positions, trained_length
from lengthwise.models.reading_path import cache_maker, reading_path
from lengthwise.models.resolve import read_config, read_tokenizer, resolve
from lengthwise.settings import Subject


def outline(subject: Subject, *, tokenizer: Any = None) -> Any:
    """A `Reader` of a subject, without weights; an endpoint is opened, with `tokenizer` if it names none.

    Raises:
        UsageError, MissingError: as `open_model`, for what does not need the weights.
    """
    if is_url(subject.model):
        return open_model(subject, tokenizer=tokenizer)
    cache_maker(subject)
    resolved = resolve(subject.model)
    config = read_config(resolved)
    return SimpleNamespace(
        name=subject.model,
        path=reading_path(subject),
        tokenizer=read_tokenizer(resolved),
        trained_length=trained_length(config),
        max_positions=max_positions(model_skeleton(config)),
    )
