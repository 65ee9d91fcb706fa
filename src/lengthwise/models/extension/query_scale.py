"""EABF's query scaling in a transformers model, around whichever attention function the model uses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import UsageError
from lengthwise.models.extension.record import Extension
from lengthwise.models.hidden import decoder_of
from lengthwise.positions.rope.eabf import query_scale

_PREFIX = "lengthwise_query_scaled_"
_MARK = "query_scale_length"


def attach_query_scale(base: PreTrainedModel, extension: Extension) -> None:
    """Have every layer from `skip_layers` on scale its queries.

    The attention function in force is wrapped, and again before a forward pass if it was changed in between.

    Raises:
        UsageError: the model does not use transformers' attention functions.
    """
    layers = [
        module for module in base.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")
    ]
    if not layers or not base._can_set_attn_implementation():
        raise UsageError(
            f"{type(base).__name__} does not use transformers' attention functions, so its queries cannot be scaled",
            expected="a model whose attention can be chosen with attn_implementation",
        )
    for layer in layers:
        if layer.layer_idx >= extension.options["skip_layers"]:  # type: ignore[operator]
            setattr(layer, _MARK, extension.original_length)
    decoder_of(base).register_forward_pre_hook(_wrap_attention)


def _wrap_attention(decoder: nn.Module, args: Any) -> None:
    config: Any = decoder.config
    name: str = config._attn_implementation
    if name.startswith(_PREFIX):
        return
    wrapped = _PREFIX + name
    if wrapped not in ALL_ATTENTION_FUNCTIONS.valid_keys():
        ALL_ATTENTION_FUNCTIONS.register(wrapped, _scaled(name))
        ALL_MASK_ATTENTION_FUNCTIONS.register(wrapped, ALL_MASK_ATTENTION_FUNCTIONS[name])
    config._attn_implementation = wrapped


def _scaled(name: str) -> Callable[..., Any]:
    """The attention function `name` after the queries were scaled, in layers that are marked for it."""

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        length = getattr(module, _MARK, None)
        if length is not None:
            position_ids = kwargs.get("position_ids")
            if position_ids is None:
                raise UsageError(
                    f"{type(module).__name__} does not pass position ids on, so its queries cannot be scaled"
                )
            scale = query_scale(position_ids, length)[:, None, :, None]
            query = (query.float() * scale).to(query.dtype)
        if name == "eager":
            # Each modeling file has an eager function of its own, which is what stands behind that name.
            function = sys.modules[type(module).__module__].eager_attention_forward
        else:
            function = ALL_ATTENTION_FUNCTIONS[name]
        return function(module, query, key, value, *args, **kwargs)

    return attention
