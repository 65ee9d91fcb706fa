"""Positions of a model: trained length, rope, the size of a table of positions, frequencies that change."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from lengthwise.checkpoints.hidden import (
    accepted,
    decoder_of,
    first_position,
    running,
    unwrap,
    view_arguments,
)
from lengthwise.checkpoints.position_modules import (
    POSITION_TABLES,
    following_ropes,
    frequencies_of,
    position_tables,
    set_frequencies,
)
from lengthwise.errors import UsageError

RECORD = "lengthwise_extension"
"""Name of the record of an extension: a key in config.json; beside an adapter, without config.json, a file's stem."""
LENGTH = "original_max_position_embeddings"
"""The key of rope settings that says for how many tokens a model was trained before it was extended."""
_ENDLESS = 2**40
SLIDING = {"sliding_attention": "full_attention", "hybrid_sliding": "hybrid"}
"""transformers' types of layers that see the last `sliding_window` tokens alone; each with that which sees all."""


def as_length(value: Any) -> int | None:
    """A length in a configuration; None for what means "no limit" or nothing: None, 0, -1 (XLNet), 1e30."""
    return int(value) if isinstance(value, int | float) and 1 <= value < _ENDLESS else None


def max_positions(model: nn.Module) -> int | None:
    """Rows of the model's table of positions; None if it computes positions (rope, ALiBi).

    A table is learned (GPT-2, OPT) or fixed at construction (GPT-J). `lengthwise.extend` refuses models with one.
    """
    base = unwrap(model)
    config: Any = base.config
    limit = as_length(getattr(config.get_text_config(), "max_position_embeddings", None))
    learned = position_tables(base)
    fixed = any(
        name.rpartition(".")[2] in POSITION_TABLES and buffer.shape[0] == limit
        for name, buffer in base.named_buffers()
    )
    return limit - first_position(model) if limit is not None and (learned or fixed) else None


def check_positions_fit(limit: int | None, needed: int, *, name: str, setting: str | None = None) -> None:
    """Raise UsageError if a model has fewer than `needed` positions. `setting` needs them; None is the text."""
    if limit is not None and needed > limit:
        wanted = f"{needed} tokens are needed" if setting is None else f"{setting} = {needed}"
        raise UsageError(
            f"{wanted}, but {name} has a table of {limit} positions",
            expected=f"at most {limit}",
            fix="use a shorter length, or a model with rotary positions",
        )


def rope_by_input_length(config: Any) -> str | None:
    """The rope method, if what it does depends on how many tokens are read in one pass; else None."""
    types = [
        (rope.get("rope_type") or "default").removeprefix("lengthwise_")
        for rope in ropes(config).values()
        if not _one_for_all(config, rope)
    ]
    if {*types} <= {"default"}:
        return None
    from lengthwise.positions import ROPE_METHODS

    by_length = {
        rope_type
        for name, entry in ROPE_METHODS.items()
        if entry.by_input_length
        for rope_type in (name, entry.rope_type)
    }
    return next((kind for kind in types if kind in by_length), None)


def read_again_after(model: nn.Module) -> int | None:
    """After how many tokens transformers drops the cache in which it generates one by one; None if it never does.

    At LongRoPE's switch, Phi's classes discard the cache and read all tokens again. Other classes keep it, with keys
    of both frequencies.
    """
    base: Any = unwrap(model)
    if rope_by_input_length(base.config.get_text_config()) != "longrope":
        return None
    # As for settings of rope: code reads a key by its name.
    generates = inspect.getsource(type(base).prepare_inputs_for_generation)
    return getattr(base.config, LENGTH, None) if LENGTH in generates else None


def fixed_alpha(config: Any, rope: Mapping[str, Any]) -> float | None:
    """HunYuan's, which alone reads it: its "dynamic" has one base for every input, base * alpha^(d/(d-2))."""
    return rope.get("alpha") if str(config.model_type).startswith("hunyuan") else None


def _one_for_all(config: Any, rope: Mapping[str, Any]) -> bool:
    """Whether a method that looks at the input's length finds the same at every length: equal lists (MiniCPM3)."""
    if fixed_alpha(config, rope):
        return True
    return rope.get("rope_type") == "longrope" and all(
        rope.get(f"short_{each}") == rope.get(f"long_{each}") for each in ("factor", "mscale")
    )


def ropes(config: Any) -> dict[Any, dict[str, Any]]:
    """The rope settings of a text configuration by type of layer, of those that have any; None is all layers."""
    rope = getattr(config, "rope_parameters", None) or {}
    nested = {key: value for key, value in rope.items() if isinstance(value, dict)}
    return nested or ({None: rope} if rope else {})


def check_rope_values(config: Any, name: str) -> None:
    """Raise UsageError unless rope settings are numbers where they must be, and of a type that transformers has."""
    for rope in ropes(config).values():
        kind = rope.get("rope_type") or "default"
        numbers = (
            "rope_theta",
            "factor",
            LENGTH,
            *(key for key in rope if re.search("_factor|beta|mscale", key)),
        )
        wrong = [
            f"{key} = {rope[key]!r}"
            for key in numbers
            for value in (rope[key] if isinstance(rope.get(key), list) else [rope.get(key)])
            if isinstance(value, bool) or not isinstance(value, int | float | None)
        ]
        if kind != "default" and not kind.startswith("lengthwise_") and kind not in ROPE_INIT_FUNCTIONS:
            wrong.append(f"rope_type = {kind!r}")
        if wrong:
            raise UsageError(
                f"the rope settings of {name} have {', '.join(wrong)}",
                expected=f"numbers, and a type of transformers: default, {', '.join(sorted(ROPE_INIT_FUNCTIONS))}",
                fix="write the settings of the checkpoint's authors into config.json",
            )


def sliding_layers(config: Any) -> list[int]:
    """Indices of the layers that see the last `sliding_window` tokens alone."""
    text = config.get_text_config()
    # Moshi's caches have its window, and its masks none.
    if getattr(text, "sliding_window", None) is None or text.model_type == "moshi":
        return []
    types = getattr(text, "layer_types", None)
    # MiniMax slides in the layers that have softmax attention.
    slides = ["full_attention"] if text.model_type == "minimax" else SLIDING
    # A model with a window and without types has it in all layers (Mistral).
    return [layer for layer in range(text.num_hidden_layers) if types is None or types[layer] in slides]


def far_layers(config: Any, length: int) -> list[int]:
    """Indices of the layers that see more than `length` tokens: no window or chunk ends before."""
    text, local = config.get_text_config(), sliding_layers(config)
    layers = range(text.num_hidden_layers)
    types = getattr(text, "layer_types", None) or [None for _ in layers]
    chunks: dict[Any, Any] = {"chunked_attention": getattr(text, "attention_chunk_size", None)}
    seen: list[Any] = [
        text.sliding_window if layer in local else chunks.get(types[layer]) for layer in layers
    ]
    return [layer for layer in layers if seen[layer] is None or seen[layer] > length]


def frequency_names(layer_type: str | None) -> tuple[str, str]:
    """The attributes of a rotary embedding that hold frequencies and attention scaling.

    A module that serves several types of layers has them once for each type.
    """
    prefix = "" if layer_type is None else f"{layer_type}_"
    return f"{prefix}inv_freq", f"{prefix}attention_scaling"


def trained_length(config: Any) -> int | None:
    """Context in tokens before any extension; None if the configuration does not say."""
    if record := getattr(config, RECORD, None):
        return int(record["original_length"])
    settings = ropes(config).values()
    # Beside a scaling, transformers prefers the key at the top, but for rope by type of layer.
    scaled = ropes(config).get(None, {}).get("rope_type", "default") != "default"
    top = [getattr(config, LENGTH, None)] if scaled else []
    lengths = [
        *top,
        *(rope.get(LENGTH) for rope in settings),
        getattr(config, "max_position_embeddings", None),
    ]
    return next((length for length in map(as_length, lengths) if length), None)


def described(rope: Mapping[str, Any]) -> str:
    """Rope parameters in words: "yarn by 4 from 4,096 tokens, base 10,000"."""
    factor, length = rope.get("factor"), rope.get(LENGTH)
    kind = rope.get("rope_type", "default").replace("default", "plain rope")
    scaled = (f" by {factor:g}" if factor else "") + (f" from {length:,} tokens" if length else "")
    return f"{kind}{scaled}, base {rope['rope_theta']:,.10g}"


def impossible(rope: Mapping[str, Any]) -> str | None:
    """What no method of rope can mean, in words; None where nothing is."""
    kind = rope.get("rope_type", "default")
    ends = {
        "yarn": ("beta_fast", "beta_slow", 32.0, 1.0),
        "llama3": ("high_freq_factor", "low_freq_factor", 4.0, 1.0),
    }
    for key, given in rope.items():
        for number in given if isinstance(given, list) else [given]:
            # A length or an end of a ramp that is 0 is none; what multiplies or divides cannot be 0.
            if (
                isinstance(number, int | float)
                and not 0 <= number - (number == 0 and "factor" in key) < math.inf
            ):
                return f"{key} = {number:g} is no finite number above 0"
    if rope.get("rope_theta", 2) <= 1:
        return f"rope_theta = {rope['rope_theta']:g} gives no frequencies that differ"
    if kind in ends:
        upper, lower, *defaults = ends[kind]
        high, low = (rope.get(name) or value for name, value in zip((upper, lower), defaults, strict=True))
        # Llama 4 Scout has llama3's ends at one place: a step.
        if high < low or (high == low and kind == "yarn"):
            return f"{upper} = {high:g} is not above {lower} = {low:g}"
    factor = rope.get("factor")
    if kind in ("linear", "dynamic", "yarn", "llama3") and factor is not None and factor < 1:
        return f"factor = {factor:g} shrinks the context"
    if kind == "longrope" and len(rope.get("short_factor") or ()) != len(rope.get("long_factor") or ()):
        return "short_factor and long_factor have other lengths"
    return None


def lost_ropes(config: Any) -> dict[str, Any]:
    """The settings in `rope_parameters` beside those of each type of layer, where no type has them: none is read."""
    by_type = ropes(config)
    flat = {} if None in by_type else getattr(config.get_text_config(), "rope_parameters", None) or {}
    return {
        key: value
        for key, value in flat.items()
        # transformers 5.0 writes keys without a value beside the types.
        if value is not None
        and not isinstance(value, Mapping)
        and not any(rope.get(key) == value for rope in by_type.values())
    }


def positions_matter(base: Any, layers: Collection[int] | None = None) -> bool:
    """Whether a gap in the positions of a text changes what a model predicts: not with ALiBi, nor without positions.

    With `layers`, whether other rotations in these alone do. True of a model that cannot be asked: without weights,
    or that takes no position ids, or whose layers are given no rotations.
    """
    embeddings = base.get_input_embeddings().weight
    if embeddings.is_meta or not accepted(base, position_ids=None):
        return True
    ids = torch.arange(6, device=embeddings.device)[None] % len(embeddings)
    follow, training = following_ropes(base), [module for module in base.modules() if module.training]
    kept, logits, turned = frequencies_of(follow), list[Tensor](), list[bool]()
    blocks = enumerate(getattr(decoder_of(base), "layers", ())) if layers is not None else ()

    def turn(_: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        given = kwargs.get("position_embeddings")
        parts: tuple[Any, ...] = given if isinstance(given, tuple) else (given,)
        turned.append(all(isinstance(each, Tensor) and each.shape[1:2] == ids.shape[1:] for each in parts))
        if turned[-1]:
            flipped = tuple(each.flip(1) for each in parts)
            kwargs = kwargs | {"position_embeddings": flipped if isinstance(given, tuple) else flipped[0]}
        return args, kwargs

    with torch.no_grad(), running(f"a {type(base).__name__}", ids.shape[1]), ExitStack() as hooks:
        for gap in (0, 3 if layers is None else 0):
            positions = ids + first_position(base) + gap * (ids > 2)
            given = view_arguments(base, ids, positions) | accepted(base, use_cache=False)
            logits.append(base.eval()(**given).logits)
            for index, block in blocks:
                if index in (layers or ()):
                    hooks.callback(block.register_forward_pre_hook(turn, with_kwargs=True).remove)
    for module in training:
        module.training = True
    set_frequencies(follow, kept)
    known = layers is None or (turned and all(turned))
    return not (known and torch.equal(*logits))
