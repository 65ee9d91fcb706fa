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

# Frequencies of a model that was cast to bfloat16 have its 8 bits.
_TOLERANCE = 1e-2


def find_rotary(base: PreTrainedModel) -> list[tuple[nn.Module, str, Any]]:
    """(parent, name, module) of every rotary embedding that is built from the configuration."""
    return [
        (parent, name, module)
        for parent in base.modules()
        for name, module in parent.named_children()
        if hasattr(module, "inv_freq") and hasattr(module, "rope_type") and hasattr(module, "config")
    ]


def rebuild_rotary(base: PreTrainedModel, extension: Extension) -> None:
    """Build the rotary embeddings from the configuration: it is read when they are made, and never again.

    Raises:
        UsageError: there is none, or it does not compute what the extension says.
    """
    found = find_rotary(base)
    if not found:
        raise UsageError(
            f"no rotary embedding is found in a {type(base).__name__}",
            expected="a model of transformers with a module that has inv_freq",
        )
    for parent, name, old in found:
        new = type(old)(config=old.config).to(old.inv_freq.device)
        check_frequencies(new, extension, extended=True)
        setattr(parent, name, new)


def check_frequencies(module: Any, extension: Extension, *, extended: bool) -> None:
    """Compare a rotary embedding with the formula, before (`extended` False) or after the extension.

    Raises:
        UsageError: they differ.
    """
    if extended:
        custom = module.rope_type == extension.custom_rope_type
        # transformers' types that depend on the input start with what is right up to L0.
        expected, scaling = extension.inverse_frequencies(None if custom else extension.original_length)
    else:
        expected, scaling = plain_frequencies(extension.theta, extension.head_dim).float(), 1.0
    actual = module.inv_freq.detach().float().cpu()
    fits = actual.shape == expected.shape and torch.allclose(actual, expected, rtol=_TOLERANCE, atol=0)
    if not fits or abs(module.attention_scaling - scaling) > 1e-6:
        raise UsageError(
            f"{type(module).__name__} does not compute its positions as its configuration says"
            + (f" (rope type {module.rope_type})" if extended else " (plain rope)"),
            expected="a model whose rotary embedding has theta^(-2k/d) as its frequencies",
        )


def register_rope_types() -> None:
    """Register `lengthwise_METHOD` for every method; once or more often."""
    for method in ROPE_METHODS:
        ROPE_INIT_FUNCTIONS[f"lengthwise_{method}"] = _recorded_frequencies


def _recorded_frequencies(
    config: Any, device: Any = None, seq_len: int | None = None, layer_type: str | None = None
) -> tuple[Tensor, float]:
    """The frequencies of the extension that the configuration records, as transformers asks for them."""
    extension = read_extension(config)
    assert extension is not None, config.rope_parameters
    frequencies, scaling = extension.inverse_frequencies()
    return frequencies.to(device), scaling
