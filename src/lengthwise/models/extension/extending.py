"""`extend` a loaded model to longer contexts; `restore_extension` of a model that was saved extended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.errors import MissingError, UsageError
from lengthwise.models.attention_layers import scale_queries
from lengthwise.models.extension.clex_model import attach_clex, clex_modules
from lengthwise.models.extension.extended_config import extended_layers, plan_extension, write_extension
from lengthwise.models.extension.extension_record import Extension, read_extension
from lengthwise.models.extension.rotary import (
    check_frequencies,
    find_rotary,
    rebuild_rotary,
    register_rope_types,
)
from lengthwise.models.hidden import unwrap
from lengthwise.models.resolve import quiet_transformers
from lengthwise.positions.attention import QueryScale

register_rope_types()


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

    Of a model whose types of layers have rotary positions of their own, the full attention layers are extended
    (`plan_extension`).
    No weight changes; `clex` adds a small layer that needs training. After `save_pretrained`, `lengthwise.load`
    loads the model, and so does plain transformers unless the rope type begins with `lengthwise_`. Extend the
    model before you add an adapter, so that `clex` is trained with it.

    Args:
        model: a causal LM with rotary positions, bare or wrapped.
        method: a name of `lengthwise.positions.ROPE_METHODS`.
        factor: how many times longer the context becomes.
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
    for _, _, module in find_rotary(base):
        check_frequencies(module, extension, extended=False)
    with quiet_transformers():
        write_extension(base.config, extension)
        rebuild_rotary(base, extension)
    _attach(base, extension)
    return extension


def restore_extension(
    model: nn.Module, tensors: Callable[[list[str]], Mapping[str, Tensor]]
) -> Extension | None:
    """Complete a model that transformers built from an extended configuration; None if it was not extended.

    Args:
        model: the model.
        tensors: returns the tensors of these names from the checkpoint.

    Raises:
        MissingError: the checkpoint has no weights for the extension.
    """
    base = unwrap(model)
    extension = read_extension(base.config)
    if extension is None:
        return None
    _attach(base, extension)
    added = {
        f"{name}.{key}": value
        for name, module in clex_modules(base)
        for key, value in module.state_dict().items()
    }
    if added:
        saved = tensors(list(added))
        if missing := sorted(added.keys() - saved.keys()):
            raise MissingError(
                f"the checkpoint has no weights for its {extension.method} extension: {', '.join(missing)}",
                fix="save the model again with save_pretrained",
            )
        with torch.no_grad():
            for name, value in added.items():
                value.copy_(saved[name])
    return extension


def extend_as_recorded(model: nn.Module, extension: Extension, *, source: str) -> None:
    """Extend a base model as its adapter was trained, unless it is extended so already.

    Raises:
        UsageError: the model has another extension, or differs from the model that was extended.
    """
    before = read_extension(unwrap(model).config)
    if before is None:
        before = extend(
            model,
            extension.method,
            factor=extension.factor,
            original_length=extension.original_length,
            **extension.options,
        )
    if before != extension:
        raise UsageError(
            f"{source} was trained on a model with {extension}, this one has {before}",
            fix="load the model that it was trained on",
        )


def _attach(base: PreTrainedModel, extension: Extension) -> None:
    """Add what a method does besides its frequencies to a model built from an extended configuration."""
    if extension.factor > 1 and extension.method == "clex":
        attach_clex(base, extension)
    if extension.factor > 1 and extension.method == "eabf":
        skipped = extension.options["skip_layers"]
        scale = QueryScale(original_length=extension.original_length, skip_layers=skipped)
        scale_queries(base, scale, layers=extended_layers(base.config, extension))
