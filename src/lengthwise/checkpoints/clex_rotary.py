"""CLEX in a transformers model: learned frequencies in the place of its rotary embedding, and their time."""

from __future__ import annotations

import contextlib
import inspect
import math
from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor, nn

from lengthwise.checkpoints.extension import Extension
from lengthwise.checkpoints.hidden import cache_among, decoder_of
from lengthwise.checkpoints.position_limits import frequency_names
from lengthwise.errors import require, require_integer
from lengthwise.positions.clex import ClexFrequencies, clex_time

_TIME = "lengthwise_clex_time"


class _ClexRotaryEmbedding(nn.Module):
    """Takes the place of a model's rotary embedding, and runs it with the frequencies of CLEX and their gradients.

    t comes from the largest position in the batch (`clex_time`), unless it is set from outside: cached keys keep
    their rotation, so t must stay the same too.
    """

    def __init__(self, rotary: Any, extension: Extension) -> None:
        super().__init__()
        self.rotary = rotary
        self.frequencies = ClexFrequencies(extension.theta, extension.head_dim, **extension.options)
        self.extension = extension
        self.fixed_time: float | None = None
        """t for every input; set by code that knows the final length."""
        self.cached_time: float | None = None
        """t of the cached keys that the input follows; set before each forward pass by code that has the cache."""
        self.time: float | None = None
        """t of the last forward pass."""

    def forward(self, x: Tensor, position_ids: Tensor, *layer_type: str) -> tuple[Tensor, Tensor]:
        """cos and sin of position * f(t), in the layout of the model: [B, T, d] each, in x's dtype."""
        if self.extension.layer_type not in (None, *layer_type):
            return self.rotary(x, position_ids, *layer_type)
        time = self.fixed_time if self.cached_time is None else self.cached_time
        if time is None:
            length = math.floor(position_ids.max().item()) + 1
            time = clex_time(length, self.extension.original_length, self.extension.factor)
        self.time = time
        name, _ = frequency_names(self.extension.layer_type)
        before = getattr(self.rotary, name)
        setattr(self.rotary, name, self.frequencies(time))
        try:
            # Without the decorators of transformers, which take the gradients away.
            return inspect.unwrap(type(self.rotary).forward)(self.rotary, x, position_ids, *layer_type)
        finally:
            setattr(self.rotary, name, before)


def use_clex(base: Any, found: Sequence[tuple[nn.Module, str, Any]], extension: Extension) -> None:
    """Put CLEX in the place of each rotary embedding (parent, name, module) of a model."""
    for parent, name, old in found:
        clex = _ClexRotaryEmbedding(old, extension).to(next(old.buffers()).device)
        setattr(parent, name, clex.train(old.training))
    decoder = decoder_of(base)
    decoder.register_forward_pre_hook(_keep_time_of_cache, with_kwargs=True)
    decoder.register_forward_hook(_note_time_in_cache)


def clex_modules(model: nn.Module) -> list[tuple[str, _ClexRotaryEmbedding]]:
    """Name and module of every CLEX embedding."""
    return [
        (name, module) for name, module in model.named_modules() if isinstance(module, _ClexRotaryEmbedding)
    ]


@contextlib.contextmanager
def fixed_time(model: nn.Module, *, length: int) -> Iterator[None]:
    """Make a model with CLEX use the frequencies for `length` tokens, whatever its input; UsageError without CLEX.

    For generation: `length` is the prompt plus everything that will be generated. By default the prompt decides.
    """
    modules = [module for _, module in clex_modules(model)]
    require(bool(modules), "the model has no CLEX frequencies", "a model extended by clex")
    require_integer("length", length, low=1)
    before = [module.fixed_time for module in modules]
    for module in modules:
        module.fixed_time = clex_time(length, module.extension.original_length, module.extension.factor)
    try:
        yield
    finally:
        for module, time in zip(modules, before, strict=True):
            module.fixed_time = time


def _keep_time_of_cache(decoder: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Tokens after cached ones are rotated with the t of the cached keys."""
    cache = cache_among(kwargs)
    follows = cache is not None and cache.get_seq_length() > 0
    for _, module in clex_modules(decoder):
        module.cached_time = getattr(cache, _TIME, None) if follows else None
        module.time = None


def _note_time_in_cache(decoder: nn.Module, args: Any, output: Any) -> None:
    cache = cache_among(output)
    if cache is not None:
        # With an adapter there are two modules, the base model's and the trained one; one of them has run.
        for _, module in clex_modules(decoder):
            if module.time is not None:
                setattr(cache, _TIME, module.time)
