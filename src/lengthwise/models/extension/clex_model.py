"""CLEX in a transformers model: its rotary embedding, and the t that stays fixed during generation."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from lengthwise.errors import UsageError
from lengthwise.models.extension.extension_record import Extension
from lengthwise.models.extension.rotary import find_rotary, frequency_names
from lengthwise.models.hidden import decoder_of
from lengthwise.positions.rope.clex import ClexFrequencies, ClexRotaryEmbedding, clex_time

_TIME = "lengthwise_clex_time"


def clex_modules(model: nn.Module) -> list[tuple[str, ClexRotaryEmbedding]]:
    """Name and module of every CLEX embedding."""
    return [
        (name, module) for name, module in model.named_modules() if isinstance(module, ClexRotaryEmbedding)
    ]


@contextlib.contextmanager
def fixed_time(model: nn.Module, *, length: int) -> Iterator[None]:
    """Make a model with CLEX use the frequencies for `length` tokens, whatever its input.

    For generation: `length` is the prompt plus everything that will be generated. By default the prompt decides.

    Raises:
        UsageError: the model has no CLEX.
    """
    modules = [module for _, module in clex_modules(model)]
    if not modules:
        raise UsageError("the model has no CLEX frequencies", expected="a model extended by clex")
    for module in modules:
        module.fixed_time = clex_time(length, module.original_length, module.factor)
    try:
        yield
    finally:
        for module in modules:
            module.fixed_time = None


def attach_clex(base: PreTrainedModel, extension: Extension) -> None:
    """Replace the rotary embeddings by CLEX.

    Raises:
        UsageError: the layout of the model's cosines is unknown.
    """
    for parent, name, old in find_rotary(base):
        frequencies = ClexFrequencies(extension.theta, extension.head_dim, **extension.options)
        new = ClexRotaryEmbedding(
            frequencies,
            extension.original_length,
            extension.factor,
            interleaved=_interleaved(old, extension.layer_type),
            layer_type=extension.layer_type,
            other_layers=None if extension.layer_type is None else old,
        )
        setattr(parent, name, new.to(next(old.buffers()).device))
    decoder = decoder_of(base)
    decoder.register_forward_pre_hook(_keep_time_of_cache, with_kwargs=True)
    decoder.register_forward_hook(_note_time_in_cache)


def _interleaved(old: Any, layer_type: str | None) -> bool:
    """Whether cos and sin belong to neighbouring dimensions, as the module's output at one position shows."""
    angles = getattr(old, frequency_names(layer_type)[0]).float()
    x = torch.zeros(1, 1, 1, device=angles.device, dtype=torch.bfloat16)
    given = old(
        x,
        torch.ones(1, 1, dtype=torch.long, device=angles.device),
        **({} if layer_type is None else {"layer_type": layer_type}),
    )
    if isinstance(given, tuple) and len(given) == 2 and given[1].dtype == x.dtype:
        layouts = {False: torch.cat((angles, angles)), True: angles.repeat_interleave(2)}
        for interleaved, layout in layouts.items():
            expected = layout.sin().to(x.dtype)
            if given[1].shape[-1:] == expected.shape and torch.allclose(given[1][0, 0], expected, rtol=1e-2):
                return interleaved
    raise UsageError(
        f"CLEX does not know the layout of the cosines and sines of {type(old).__name__}",
        expected="a model whose heads are rotated as in Llama or Cohere",
    )


def _keep_time_of_cache(decoder: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
    """Tokens after cached ones are rotated with the t of the cached keys."""
    cache = kwargs.get("past_key_values")
    follows = cache is not None and cache.get_seq_length() > 0
    for _, module in clex_modules(decoder):
        module.cached_time = getattr(cache, _TIME, None) if follows else None
        module.time = None


def _note_time_in_cache(decoder: nn.Module, args: Any, output: Any) -> None:
    cache = getattr(output, "past_key_values", None)
    if cache is not None:
        # With an adapter there are two modules, the base model's and the trained one; one of them has run.
        for _, module in clex_modules(decoder):
            if module.time is not None:
                setattr(cache, _TIME, module.time)
