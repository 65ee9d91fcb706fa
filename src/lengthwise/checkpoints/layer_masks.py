"""Attention masks by kind of layer: full, with a sliding window, in chunks. Borders go by position."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.checkpoints.hidden import additive_mask
from lengthwise.errors import UsageError

_WINDOW, _CHUNK = "sliding_window", "attention_chunk_size"
_KINDS = {"full_attention": None, "sliding_attention": _WINDOW, "chunked_attention": _CHUNK}
"""The setting that says how far a kind of layer sees."""


def kinds_of(config: Any) -> list[str]:
    """The kinds of layers of a text configuration, as transformers' `create_masks_for_generate` tells them apart.

    Raises:
        UsageError: layers that are no attention, or one of a kind that is not known here.
    """
    given = getattr(config, "layer_types", None)
    if not given:
        setting = next((name for name in (_WINDOW, _CHUNK) if getattr(config, name, None) is not None), None)
        return [next(kind for kind, own in _KINDS.items() if own == setting)]
    kinds = sorted(set(given))
    if unknown := [kind for kind in kinds if kind not in _KINDS]:
        raise UsageError(
            f"it has layers of {' and '.join(unknown)}", expected=f"layers of {', '.join(_KINDS)}"
        )
    return kinds


def layer_masks(
    config: Any, allowed: Tensor, positions: Tensor, keys: Tensor, dtype: torch.dtype
) -> Tensor | dict[str, Tensor]:
    """What a forward pass takes as `attention_mask` so that each layer sees what its kind does of `allowed`.

    Args:
        config: the model's text configuration.
        allowed: [N, K], True where a token attends in a layer that sees everything.
        positions: of the tokens, [N].
        keys: positions of what they attend to, [K].
        dtype: the model's.

    Returns:
        One mask [1, 1, N, K], or one for each kind of layer.
    """
    masks = {}
    for kind in kinds_of(config):
        setting = _KINDS[kind]
        size = None if setting is None else getattr(config, setting)
        near = allowed
        if size is not None and setting == _WINDOW:
            near = allowed & (keys > positions[:, None] - size)
        elif size is not None:
            near = allowed & (keys // size == positions[:, None] // size)
        masks[kind] = additive_mask(near, dtype)
    return masks if len(masks) > 1 else next(iter(masks.values()))
