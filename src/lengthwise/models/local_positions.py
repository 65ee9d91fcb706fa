"""Sliding-window layers at sampled positions: they keep the distances that they see in use."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.errors import UsageError
from lengthwise.models.hidden import decoder_of, has_compiled_code, unwrap

SLIDING = "sliding_attention"


def sliding_layers(config: Any) -> list[int]:
    """Indices of the layers that see the last `sliding_window` tokens alone."""
    text = config.get_text_config()
    if getattr(text, "sliding_window", None) is None:
        return []
    types = getattr(text, "layer_types", None)
    # A model with a window and without types has it in all layers (Mistral).
    return [layer for layer in range(text.num_hidden_layers) if types is None or types[layer] == SLIDING]


@contextlib.contextmanager
def local_positions(model: nn.Module, position_ids: Tensor | None) -> Iterator[None]:
    """Inside, sliding-window layers rotate queries and keys by consecutive positions; the others by `position_ids`.

    With a window of w tokens a layer never sees a distance of w or more in use. transformers' masks let it see the
    last w tokens of a row, whatever their position ids are. So behind a skip they would lie at distances that are
    new to it. A row keeps its position ids in these layers if they span w or fewer; else it has 0 .. L-1 there.
    Nothing changes for models without such layers, and for rows at consecutive positions.

    Args:
        model: a transformers causal LM, bare or wrapped.
        position_ids: what the forward pass inside is given, [B, L]; None is 0 .. L-1.

    Raises:
        UsageError: torch.compile runs the model, or its sliding layers take no `position_embeddings`.
    """
    base = unwrap(model)
    indices = sliding_layers(base.config) if position_ids is not None else []
    if not indices:
        yield
        return
    if has_compiled_code(model):
        raise UsageError(
            f"sampled positions in a {type(base).__name__} that torch.compile runs: its sliding-window layers "
            "need positions of their own",
            expected="a model that is not compiled, or positions 0 .. L-1",
        )
    decoder: Any = decoder_of(model)
    placed = _Placed(decoder, base.config.get_text_config())
    handles = [decoder.layers[index].register_forward_pre_hook(placed, with_kwargs=True) for index in indices]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class _Placed:
    """A hook before a layer: gives it cos and sin of its own positions, computed once a pass."""

    def __init__(self, decoder: Any, text: Any) -> None:
        self._rotary = getattr(decoder, "rotary_emb", None)
        rope = getattr(text, "rope_parameters", None) or {}
        self._layer_type = (SLIDING,) if any(isinstance(value, dict) for value in rope.values()) else ()
        self._window: int = text.sliding_window
        self._given: Any = None
        self._own: Any = None

    def __call__(
        self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, positions = kwargs.get("position_embeddings"), kwargs.get("position_ids")
        if self._rotary is None or given is None or positions is None:
            raise UsageError(
                f"sampled positions, and the sliding-window layers of a {type(layer).__name__} take theirs in a "
                "way that is not known here",
                expected="layers that take position_embeddings and position_ids, as those of Gemma 3 do",
            )
        if given is not self._given:
            # The rotary embedding reads dtype and device from its first argument.
            self._given, self._own = given, self._rotary(given[0], self._local(positions), *self._layer_type)
        return args, kwargs | {"position_embeddings": self._own}

    def _local(self, positions: Tensor) -> Tensor:
        span = positions.amax(dim=-1, keepdim=True) - positions.amin(dim=-1, keepdim=True)
        consecutive = torch.arange(positions.shape[-1], device=positions.device, dtype=positions.dtype)
        return positions.where(span < self._window, consecutive)
