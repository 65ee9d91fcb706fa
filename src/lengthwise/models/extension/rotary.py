"""A model's rotary embedding modules: found, compared with the formula, rebuilt; our own rope types."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.errors import UsageError
from lengthwise.models.extension.extension_record import Extension, read_extension
from lengthwise.positions import ROPE_METHODS
from lengthwise.positions.rope.plain_rope import plain_frequencies

# A model that was cast to bfloat16 has frequencies of 8 bits.
_TOLERANCE = 1e-2


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


def frequency_names(layer_type: str | None) -> tuple[str, str]:
    """The attributes of a rotary embedding that hold frequencies and attention scaling.

    A module that serves several types of layers has them once for each type.
    """
    prefix = "" if layer_type is None else f"{layer_type}_"
    return f"{prefix}inv_freq", f"{prefix}attention_scaling"


def rebuild_rotary(base: PreTrainedModel, extension: Extension) -> None:
    """Rebuild the rotary embeddings: they read the configuration only when they are created.

    Raises:
        UsageError: there is none, or it does not compute the frequencies of the extension.
    """
    found = find_rotary(base)
    if not found:
        raise UsageError(
            f"no rotary embedding is found in a {type(base).__name__}",
            expected="a model of transformers with a module that has inv_freq",
        )
    for parent, name, old in found:
        new = type(old)(config=old.config).to(next(old.buffers()).device)
        check_frequencies(new, extension, extended=True)
        setattr(parent, name, new)


def check_frequencies(module: Any, extension: Extension, *, extended: bool) -> None:
    """Compare a rotary embedding with the formula, before (`extended` False) or after the extension.

    Raises:
        UsageError: they differ.
    """
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
            + (f" (rope type {rope_type})" if extended else " (plain rope)"),
            expected="a model whose rotary embedding has theta^(-2k/d) as its frequencies",
        )


def register_rope_types() -> None:
    """Register `lengthwise_METHOD` for every method with transformers."""
    for method in ROPE_METHODS:
        ROPE_INIT_FUNCTIONS[f"lengthwise_{method}"] = _recorded_frequencies


def _recorded_frequencies(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """The frequencies of the recorded extension, through the interface of transformers."""
    extension = read_extension(config)
    assert extension is not None, config.rope_parameters
    frequencies, scaling = extension.inverse_frequencies()
    return frequencies.to(device), scaling
