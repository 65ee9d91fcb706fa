"""Context extension of a transformers model: its rotary embeddings rebuilt or replaced by CLEX, and restored."""

from __future__ import annotations

import contextlib
import inspect
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.checkpoints.attention_layers import scale_queries
from lengthwise.checkpoints.extension import (
    Extension,
    extended_layers,
    plan_extension,
    read_extension,
    write_extension,
)
from lengthwise.checkpoints.hidden import cache_among, decoder_of, unwrap
from lengthwise.checkpoints.position_limits import RECORD, frequency_names
from lengthwise.checkpoints.resolve import ResolvedModel, looks_like_path, quiet_transformers
from lengthwise.errors import MissingError, UsageError
from lengthwise.files import read_json
from lengthwise.positions.attention_methods import QueryScale
from lengthwise.positions.clex import ClexFrequencies, clex_time
from lengthwise.positions.rope import plain_frequencies
from lengthwise.settings import checked

# A model that was cast to bfloat16 has frequencies of 8 bits.
_TOLERANCE = 1e-2
_TIME = "lengthwise_clex_time"


def extend(
    model: nn.Module,
    method: str,
    *,
    factor: float,
    original_length: int | None = None,
    name: str | None = None,
    **options: Any,
) -> Extension:
    """Extend the context of a loaded transformers model, in place: its configuration and its positions.

    No weight changes; `clex` adds a small layer that needs training. After `save_pretrained`, `lengthwise.load`
    loads the model, and so does plain transformers unless the rope type begins with `lengthwise_`. Extend the
    model before you add an adapter, so that `clex` is trained with it. If types of layers have rotary positions of
    their own, only the full attention layers are extended.

    Args:
        model: a causal LM with rotary positions, bare or wrapped.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        factor: how many times longer the context becomes; 1 changes nothing but is recorded.
        original_length: L0 in tokens; None is what the configuration says.
        name: the model's name for errors.
        **options: the method's options.

    Raises:
        UsageError: as `plan_extension`; or the model does not compute its positions as its configuration says.
    """
    base = unwrap(model)
    extension = plan_extension(
        base.config, method, factor=factor, original_length=original_length, options=options, name=name
    )
    found = find_rotary(base)
    if not found:
        raise UsageError(
            f"no rotary embedding is found in a {type(base).__name__}",
            expected="a model of transformers with a module that has inv_freq",
        )
    for _, _, module in found:
        _check_frequencies(module, extension, extended=False)
    with quiet_transformers():
        write_extension(base.config, extension)
        # A rotary embedding reads the configuration only when it is created.
        for parent, place, old in found:
            new = type(old)(config=old.config).to(next(old.buffers()).device)
            _check_frequencies(new, extension, extended=True)
            setattr(parent, place, new)
    _attach(base, extension)
    return extension


def restore_extension(model: nn.Module, resolved: ResolvedModel) -> None:
    """Complete a model that transformers built from the configuration of a model that was extended.

    Raises:
        MissingError: the checkpoint has no weights for the extension.
    """
    base = unwrap(model)
    extension = read_extension(base.config)
    assert extension is not None
    _attach(base, extension)
    for name, module in clex_modules(base):
        own = {f"{name}.{key}": key for key in module.state_dict()}
        saved = _saved_tensors(resolved, [*own])
        if missing := sorted(own.keys() - saved.keys()):
            raise MissingError(
                f"the checkpoint has no weights for its {extension.method} extension: {', '.join(missing)}",
                fix="save the model again with save_pretrained",
            )
        module.load_state_dict({own[full]: tensor for full, tensor in saved.items()})


def extend_for_adapter(model: nn.Module, adapter: str) -> None:
    """Extend a base model as its adapter was trained, unless it is extended so already.

    Raises:
        UsageError: the model has another extension, or differs from the model that was extended; the record beside
            the adapter is damaged.
    """
    if (wanted := adapter_extension(adapter)) is None:
        return
    before = read_extension(unwrap(model).config) or extend(
        model,
        wanted.method,
        factor=wanted.factor,
        original_length=wanted.original_length,
        **wanted.options,
    )
    if before != wanted:
        raise UsageError(
            f"the adapter {adapter} was trained on a model with {wanted}, this one has {before}",
            fix="load the model that it was trained on",
        )


def adapter_extension(adapter: str) -> Extension | None:
    """The extension that a saved adapter was trained with; None if none is recorded beside it.

    Raises:
        UsageError: the record is damaged.
    """
    file = checkpoint_file(adapter, f"{RECORD}.json")
    if file is None:
        return None
    return checked(Extension, read_json(file, expected="the record of an extension"), source=str(file))


def find_rotary(base: PreTrainedModel) -> list[tuple[nn.Module, str, Any]]:
    """(parent, name, module) of every rotary embedding that is built from the configuration."""
    return [
        (parent, name, module)
        for parent in base.modules()
        for name, module in parent.named_children()
        if hasattr(module, "config")
        and hasattr(module, "rope_type")
        and (hasattr(module, "inv_freq") or isinstance(module.rope_type, dict))
    ]


class ClexRotaryEmbedding(nn.Module):
    """Takes the place of a model's rotary embedding, and runs it with the frequencies of CLEX and their gradients.

    t comes from the largest position in the batch (`clex_time`), unless it is set from outside: cached keys keep
    their rotation, so t must stay the same too.

    Args:
        rotary: the model's own.
        extension: by clex.
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
        module.fixed_time = clex_time(length, module.extension.original_length, module.extension.factor)
    try:
        yield
    finally:
        for module in modules:
            module.fixed_time = None


def _check_frequencies(module: Any, extension: Extension, *, extended: bool) -> None:
    """Raise UsageError if a rotary embedding differs from the formula, before or after the extension."""
    layer_type = extension.layer_type
    rope_type = module.rope_type if layer_type is None else module.rope_type[layer_type]
    if extended:
        custom = rope_type == extension.custom_rope_type
        # transformers' input-dependent types start with the frequencies for up to L0.
        expected, scaling = extension.inverse_frequencies(None if custom else extension.original_length)
    else:
        expected, scaling = plain_frequencies(extension.theta, extension.head_dim).float(), 1.0
    inv_freq, attention_scaling = (getattr(module, name) for name in frequency_names(layer_type))
    actual = inv_freq.detach().float().cpu()
    fits = actual.shape == expected.shape and torch.allclose(actual, expected, rtol=_TOLERANCE, atol=0)
    if not fits or abs(attention_scaling - scaling) > 1e-6:
        raise UsageError(
            f"{type(module).__name__} does not compute its positions as its configuration says"
            f" (rope type {rope_type})",
            expected="a model whose rotary embedding has theta^(-2k/d) as its frequencies",
        )


def _attach(base: PreTrainedModel, extension: Extension) -> None:
    """Add what a method does besides its frequencies to a model built from an extended configuration."""
    if extension.factor == 1:
        return
    if extension.method == "eabf":
        skipped = extension.options["skip_layers"]
        scale = QueryScale(original_length=extension.original_length, skip_layers=skipped)
        scale_queries(base, scale, layers=extended_layers(base.config, extension))
    if extension.method == "clex":
        for parent, name, old in find_rotary(base):
            setattr(parent, name, ClexRotaryEmbedding(old, extension).to(next(old.buffers()).device))
        decoder = decoder_of(base)
        decoder.register_forward_pre_hook(_keep_time_of_cache, with_kwargs=True)
        decoder.register_forward_hook(_note_time_in_cache)


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


def _saved_tensors(resolved: ResolvedModel, names: list[str]) -> dict[str, Tensor]:
    """The tensors of these names that a safetensors checkpoint has."""
    from safetensors import safe_open

    index = checkpoint_file(resolved.location, "model.safetensors.index.json", **resolved.where)
    homes = {} if index is None else json.loads(index.read_bytes())["weight_map"]
    found: dict[str, Tensor] = {}
    for shard in sorted({homes.get(name, "model.safetensors") for name in names}):
        if (file := checkpoint_file(resolved.location, shard, **resolved.where)) is not None:
            with safe_open(file, framework="pt") as tensors:
                found |= {name: tensors.get_tensor(name) for name in {*names} & {*tensors.keys()}}
    return found


def checkpoint_file(location: str, name: str, **where: Any) -> Path | None:
    """The file of a folder or a hub repository; None if it has none."""
    from transformers.utils.hub import cached_file

    folder = Path(location).expanduser()
    if folder.exists() or looks_like_path(location):
        return folder / name if (folder / name).is_file() else None
    found = cached_file(
        location,
        name,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_connection_errors=False,
        **where,
    )
    return None if found is None else Path(found)
