"""What the measuring loops share: checks of the settings, the forward pass, errors that say where."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure.measurement import bos_note
from lengthwise.measure.rows import NonFiniteRow

__all__ = ["bos_note"]

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import Window

T = TypeVar("T")


def check_sizes(name: str, sizes: Sequence[int], *, least: int) -> tuple[int, ...]:
    """The sizes in ascending order, each once.

    Raises:
        UsageError: none is given, or one is not an integer of at least `least`.
    """
    if not sizes:
        raise UsageError(f"no {name} is given", expected="at least one")
    for size in sizes:
        check_count(name, size, least=least)
    return tuple(sorted({int(size) for size in sizes}))


def check_count(name: str, count: int, *, least: int = 1) -> None:
    """Raise UsageError unless `count` is an integer of at least `least`."""
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < least:
        raise UsageError(f"{name} is {count!r}", expected=f"an integer of at least {least}")


def check_model(model: LoadedModel, *, longest: int) -> None:
    """Raise UsageError if `model` cannot take `longest` tokens or would be measured with dropout."""
    limit = model.max_positions
    if limit is not None and longest > limit:
        raise UsageError(
            f"{longest} tokens are needed, but {model.name} has a table of {limit} positions",
            expected=f"at most {limit} tokens (learned absolute positions cannot be exceeded)",
            fix="use shorter lengths, or a model with rotary positions",
        )
    if model.model.training:
        raise UsageError(f"{model.name} is in training mode", fix="call model.eval() before measuring")


def hidden_states(model: LoadedModel, views: NDArray[np.int64], *, batch_size: int) -> Tensor:
    """What the model's head takes, for N views of T tokens, `batch_size` at a time: [N, T, ...]."""
    tokens = torch.from_numpy(np.ascontiguousarray(views))
    parts = [model.hidden_states(part) for part in tokens.split(batch_size)]
    return torch.cat(parts) if len(parts) > 1 else parts[0]


@contextmanager
def naming_bad_logits(model: LoadedModel, what: str) -> Iterator[None]:
    """Turn `NonFiniteRow` inside the block into an error that names model, text and position."""
    try:
        yield
    except NonFiniteRow as error:
        raise LengthwiseError(
            f"{model.name} gives logits that are NaN or infinite at position {error.row} of {what}",
            expected="finite logits",
            fix="check the weights, or load the model with dtype float32",
        ) from error


def named(window: Window) -> str:
    """The window in words, for errors."""
    return f"tokens {window.start} to {window.start + len(window.ids) - 1} of {window.document_id!r}"


def in_groups(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Consecutive groups of at most `size` items."""
    iterator = iter(items)
    while group := list(islice(iterator, size)):
        yield group


def equal_bins(low: int, high: int, count: int) -> list[int]:
    """Edges of `count` bins of nearly equal size over the integers low .. high - 1 (fewer if these are)."""
    count = min(count, high - low)
    return [low + (high - low) * index // count for index in range(count + 1)]


def rope_by_input_length(model: LoadedModel) -> str | None:
    """The rope method if its frequencies depend on how many tokens are read in one go."""
    parameters = getattr(model.config, "rope_parameters", None) or {}
    kinds = [parameters, *(part for part in parameters.values() if isinstance(part, dict))]
    methods = [kind.get("rope_type") for kind in kinds]
    named = (method.removeprefix("lengthwise_") for method in methods if method)
    return next(
        (method for method in named if method in ("dynamic", "dynamic_ntk", "longrope", "clex")), None
    )
