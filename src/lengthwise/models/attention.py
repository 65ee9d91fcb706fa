"""Attention methods in a transformers model: registered functions that wrap the one that the model uses."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.errors import UsageError
from lengthwise.models.hidden import decoder_of, unwrap
from lengthwise.positions import attention_method
from lengthwise.positions.attention import QueryScale, ShiftedSparse, query_scale

_SPARSE, _SPARSE_MARK = "lengthwise_shifted_sparse_", "lengthwise_shifted_sparse"
_SCALED, _SCALED_MARK = "lengthwise_query_scaled_", "query_scale_length"
# Arguments that some models pass to their attention function and S2-Attn does not implement.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


def use_attention(model: nn.Module, method: str, **options: Any) -> None:
    """Make a loaded transformers model attend by `method`, in place. It is not saved with the model.

    shifted_sparse applies while the model trains (`model.training`); in evaluation the model uses full attention.
    query_scale always applies; to save it with the model, use `extend` with `eabf`.

    Args:
        model: a causal LM, bare or wrapped.
        method: a name of `lengthwise.positions.ATTENTIONS`.
        **options: the method's options.

    Raises:
        UsageError: an unknown method or option; the model does not use transformers' attention functions.
    """
    chosen = attention_method(method, options)
    base = unwrap(model)
    if isinstance(chosen, QueryScale):
        scale_queries(base, chosen)
    else:
        _attend_sparsely(base, chosen)


def scale_queries(
    base: PreTrainedModel, method: QueryScale, *, layers: Collection[int] | None = None
) -> None:
    """Scale the queries of every layer from `skip_layers` on, or of those among them with an index in `layers`.

    The model's attention function is wrapped, and again before a forward pass if it was changed in between.

    Raises:
        UsageError: the model does not use transformers' attention functions.
    """
    for layer in _layers(base, "its queries cannot be scaled"):
        if layer.layer_idx >= method.skip_layers and (layers is None or layer.layer_idx in layers):
            setattr(layer, _SCALED_MARK, method.original_length)
    decoder_of(base).register_forward_pre_hook(lambda decoder, _: _wrap(decoder, _SCALED, _scaled))


def _attend_sparsely(base: PreTrainedModel, method: ShiftedSparse) -> None:
    for layer in _layers(base, "it cannot attend in groups"):
        setattr(layer, _SPARSE_MARK, method)
    config: Any = decoder_of(base).config
    # Queries are scaled before attention; the hook of the scaling wraps this function again.
    config._attn_implementation = config._attn_implementation.removeprefix(_SCALED)
    _wrap(decoder_of(base), _SPARSE, _sparse)


def _layers(base: PreTrainedModel, consequence: str) -> list[Any]:
    layers = [
        module for module in base.modules() if hasattr(module, "layer_idx") and hasattr(module, "scaling")
    ]
    if not layers or not base._can_set_attn_implementation():
        raise UsageError(
            f"{type(base).__name__} does not use transformers' attention functions, so {consequence}",
            expected="a model whose attention can be chosen with attn_implementation",
        )
    return layers


def _wrap(decoder: nn.Module, prefix: str, around: Callable[[str], Callable[..., Any]]) -> None:
    config: Any = decoder.config
    name: str = config._attn_implementation
    if name.startswith(prefix):
        return
    wrapped = prefix + name
    if wrapped not in ALL_ATTENTION_FUNCTIONS.valid_keys():
        ALL_ATTENTION_FUNCTIONS.register(wrapped, around(name))
        ALL_MASK_ATTENTION_FUNCTIONS.register(wrapped, ALL_MASK_ATTENTION_FUNCTIONS[name])
    config._attn_implementation = wrapped


def _function(name: str, module: nn.Module) -> Callable[..., Any]:
    if name == "eager":
        # Each modeling file defines its own eager function.
        return sys.modules[type(module).__module__].eager_attention_forward
    return ALL_ATTENTION_FUNCTIONS[name]


def _scaled(name: str) -> Callable[..., Any]:
    """The attention function `name` on scaled queries, in the layers that are marked for it."""

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        length = getattr(module, _SCALED_MARK, None)
        if length is not None:
            position_ids = kwargs.get("position_ids")
            if position_ids is None:
                raise UsageError(
                    f"{type(module).__name__} passes no position ids to its attention, which query scaling needs"
                )
            scale = query_scale(position_ids, length)[:, None, :, None]
            query = (query.float() * scale).to(query.dtype)
        return _function(name, module)(module, query, key, value, *args, **kwargs)

    return attention


def _sparse(name: str) -> Callable[..., Any]:
    """S2-Attn in marked layers while they train; otherwise the attention function `name`."""

    def attention(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        method: ShiftedSparse | None = getattr(module, _SPARSE_MARK, None)
        if method is None or not module.training:
            return _function(name, module)(module, query, key, value, attention_mask, **kwargs)
        for argument in _UNSUPPORTED:
            if kwargs.get(argument) is not None:
                raise UsageError(
                    f"the attention of a {type(module).__name__} takes {argument}, which S2-Attn does not have",
                    expected="a model with plain softmax attention",
                )
        scale, dropout = kwargs.get("scaling"), kwargs.get("dropout") or 0.0
        if attention_mask is None:
            out = method.attend(query, key, value, scale=scale, dropout=dropout)
        else:
            out = _masked(method, query, key, value, attention_mask, scale=scale, dropout=dropout)
        return out.transpose(1, 2).contiguous(), None

    return attention


def _masked(
    method: ShiftedSparse,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor,
    *,
    scale: float | None,
    dropout: float,
) -> Tensor:
    """S2-Attn under the model's own mask (padding, a sliding window), at the cost of full attention."""
    if not isinstance(mask, Tensor) or mask.dim() != 4 or query.shape[2] != key.shape[2]:
        raise UsageError(
            "S2-Attn was given a mask that it cannot combine with its groups",
            expected="rows without padding and without cached keys, or attn_implementation sdpa or eager",
        )
    heads, length = query.shape[1:3]
    allowed = method.allowed(length, heads).to(query.device)
    if mask.dtype == torch.bool:
        mask = mask & allowed
    else:
        mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)
    key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scale, dropout_p=dropout)
