"""Makes transformers build models with rope types that only lengthwise knows."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.models.extension.record import read_extension
from lengthwise.positions import ROPE_METHODS


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
