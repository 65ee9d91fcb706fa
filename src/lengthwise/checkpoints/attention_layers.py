"""Attention layers of a transformers model: its attention function wrapped; sampled positions for sliding windows."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from lengthwise.checkpoints.hidden import decoder_of, has_compiled_part, unwrap
from lengthwise.checkpoints.position_limits import SLIDING, ropes, sliding_layers
from lengthwise.errors import UsageError
from lengthwise.positions.attention_methods import attend_in_groups, group_masks, group_size, query_scale
from lengthwise.versions import checkpointing, recomputes_hooks

_WRAPPED = "lengthwise_"
"""Begins the name of an attention function that is wrapped."""
_SPARSE, _SCALED = "shifted_sparse", "query_scale_length"
"""What marks a layer: the group of its S2-Attn, and the original length from which its queries are scaled."""
# Arguments that some models pass to their attention function and S2-Attn does not implement.
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")


def use_shifted_sparse(model: nn.Module, group: float = 0.25) -> None:
    """Make a loaded transformers model attend by S2-Attn in groups of `group_size(group, length)`, in place.

    It applies while the model trains (`model.training`), and is not saved with it; in evaluation the model uses full
    attention. UsageError for an impossible group, or a model that does not use transformers' attention functions.
    """
    group_size(group, 2)
    base = unwrap(model)
    for layer in _layers(base):
        setattr(layer, _SPARSE, group)
    _wrap(decoder_of(base))


def scale_queries(base: PreTrainedModel, original_length: int, *, layers: Collection[int]) -> None:
    """Scale the queries of the layers with these indices by `query_scale`.

    The model's attention function is wrapped, and again before a forward pass if it was changed in between.
    UsageError if the model does not use transformers' attention functions.
    """
    for layer in _layers(base):
        if layer.layer_idx in layers:
            setattr(layer, _SCALED, original_length)
    decoder_of(base).register_forward_pre_hook(lambda decoder, _: _wrap(decoder))


def scales_queries(base: nn.Module) -> bool:
    """Whether `scale_queries` has marked any layer."""
    return any(hasattr(module, _SCALED) for module in base.modules())


def _layers(base: PreTrainedModel) -> list[Any]:
    # Those of an encoder of sounds or images are outside, or have no index.
    layers = [
        module
        for module in decoder_of(base).modules()
        if getattr(module, "layer_idx", None) is not None and hasattr(module, "scaling")
    ]
    if not layers or not base._can_set_attn_implementation():
        raise UsageError(
            f"a {type(base).__name__} does not use transformers' attention functions, which would be wrapped",
            expected="a model whose attention can be chosen with attn_implementation",
        )
    return layers


def _wrap(decoder: nn.Module) -> None:
    """Let the marked layers of a decoder attend in their own way."""
    config: Any = decoder.config
    name: str = config._attn_implementation
    if name.startswith(_WRAPPED):
        return
    if (wrapped := _WRAPPED + name) not in ALL_ATTENTION_FUNCTIONS.valid_keys():
        ALL_ATTENTION_FUNCTIONS.register(wrapped, _marked(name))
        ALL_MASK_ATTENTION_FUNCTIONS.register(wrapped, ALL_MASK_ATTENTION_FUNCTIONS[name])
    config._attn_implementation = wrapped


def _marked(name: str) -> Callable[..., Any]:
    """The attention function `name`, in marked layers on scaled queries, or by S2-Attn while they train."""

    def attention(
        # Doge gives the mask by name.
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        length: int | None = getattr(module, _SCALED, None)
        if length is not None:
            if (position_ids := kwargs.get("position_ids")) is None:
                raise UsageError(
                    f"{type(module).__name__} passes no position ids to its attention, which query scaling needs"
                )
            scale = query_scale(position_ids, length)[:, None, :, None]
            query = (query * scale).to(query.dtype)
        group: float | None = getattr(module, _SPARSE, None)
        if group is not None and module.training:
            if unknown := [argument for argument in _UNSUPPORTED if kwargs.get(argument) is not None]:
                raise UsageError(
                    f"the attention of a {type(module).__name__} takes {unknown[0]}, which S2-Attn does not have",
                    expected="a model with plain softmax attention",
                )
            how = {"scale": kwargs.get("scaling"), "dropout": kwargs.get("dropout") or 0.0}
            found = _attend_sparsely(group, query, key, value, attention_mask, **how)
            return found.transpose(1, 2).contiguous(), None
        if name == "eager":
            # Each modeling file defines its own eager function.
            function = sys.modules[type(module).__module__].eager_attention_forward
        else:
            function = ALL_ATTENTION_FUNCTIONS[name]
        return function(module, query, key, value, attention_mask, **kwargs)

    return attention


def _attend_sparsely(
    group: float, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, **how: Any
) -> Tensor:
    if mask is None:
        return attend_in_groups(query, key, value, group=group, **how)
    # The model's own mask (padding, a sliding window), at the cost of full attention.
    if not isinstance(mask, Tensor) or mask.dim() != 4 or query.shape[2] != key.shape[2]:
        raise UsageError(
            "S2-Attn was given a mask that it cannot combine with its groups",
            expected="rows without padding and without cached keys, or attn_implementation sdpa or eager",
        )
    heads, length = query.shape[1:3]
    key, value = (x.repeat_interleave(heads // x.shape[1], dim=1) for x in (key, value))
    allowed = group_masks(length, heads, group=group).to(query.device)
    if mask.dtype == torch.bool:
        mask = mask & allowed
    else:
        mask = mask.masked_fill(~allowed, torch.finfo(mask.dtype).min)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=how["scale"], dropout_p=how["dropout"]
    )


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
        UsageError: torch.compile runs the model, its sliding layers take no `position_embeddings`, or the backward
            pass computes them again without these positions.
    """
    base = unwrap(model)
    indices = sliding_layers(base.config) if position_ids is not None else []
    if not indices:
        yield
        return
    if has_compiled_part(model):
        raise UsageError(
            f"sampled positions in a {type(base).__name__} that torch.compile runs: its sliding-window layers "
            "need positions of their own",
            expected="a model that is not compiled, or positions 0 .. L-1",
        )
    decoder: Any = decoder_of(model)
    if any(recomputes_hooks(decoder.layers[index]) for index in indices):
        raise UsageError(
            f"sampled positions with {checkpointing()}: before transformers 5.23 the sliding-window layers of a "
            f"{type(base).__name__} lose theirs when they are computed again",
            fix="pip install 'transformers>=5.23', or train without one of the two",
        )
    rotary = getattr(decoder, "rotary_emb", None)
    text: Any = base.config.get_text_config()
    layer_type = tuple(each for each in SLIDING if each in ropes(text))
    # The cos and sin of the pass, and those that replace them: computed once for all layers.
    all_layers: Any = None
    own: Any = None

    def place(layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        nonlocal all_layers, own
        given, positions = kwargs.get("position_embeddings"), kwargs.get("position_ids")
        if rotary is None or given is None or positions is None:
            raise UsageError(
                f"the sliding-window layers of a {type(layer).__name__} take their positions in an unknown way",
                expected="layers that take position_embeddings and position_ids, as those of Gemma 3 do",
                fix="train without sampled positions",
            )
        if given is not all_layers:
            span = positions.amax(dim=-1, keepdim=True) - positions.amin(dim=-1, keepdim=True)
            consecutive = torch.arange(positions.shape[-1], device=positions.device, dtype=positions.dtype)
            local = positions.where(span < text.sliding_window, consecutive)
            # The rotary embedding reads dtype and device from its first argument.
            all_layers, own = given, rotary(given[0], local, *layer_type)
        return args, kwargs | {"position_embeddings": own}

    with contextlib.ExitStack() as hooks:
        for index in indices:
            handle = decoder.layers[index].register_forward_pre_hook(place, with_kwargs=True)
            hooks.callback(handle.remove)
        yield
