"""What a model's configuration says about positions: trained length, rope, the size of a table of positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from lengthwise.checkpoints.hidden import POSITION_TABLES, first_position, unwrap
from lengthwise.errors import UsageError
from lengthwise.positions import ROPE_METHODS

_LENGTH = "original_max_position_embeddings"


def max_positions(model: nn.Module) -> int | None:
    """Rows of the model's table of positions; None if it computes positions (rope, ALiBi).

    A table is learned (GPT-2, OPT) or fixed at construction (GPT-J). `lengthwise.extend` refuses models with one.
    """
    base = unwrap(model)
    config: Any = base.config
    limit = getattr(config.get_text_config(), "max_position_embeddings", None)
    learned = any(
        isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITION_TABLES
        for name, module in base.named_modules()
    )
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
    """The rope method, if its frequencies depend on how many tokens are read in one pass; else None."""
    by_length = {
        rope_type
        for name, entry in ROPE_METHODS.items()
        if entry.by_input_length
        for rope_type in (name, entry.rope_type)
    }
    types = [(rope.get("rope_type") or "").removeprefix("lengthwise_") for rope in ropes(config).values()]
    return next((kind for kind in types if kind in by_length), None)


def rope_parameters(config: Any) -> dict[str, Any] | None:
    """The rope settings of a text configuration, in the form of transformers 5; None without rope."""
    return getattr(config, "rope_parameters", None) or None


def ropes(config: Any) -> dict[Any, dict[str, Any]]:
    """The rope settings by type of layer, of the types that have any; None is the type of all layers."""
    rope = rope_parameters(config) or {}
    nested = {key: value for key, value in rope.items() if isinstance(value, dict)}
    return nested or ({None: rope} if rope else {})


def trained_length(config: Any) -> int | None:
    """Context in tokens before any extension; None if the configuration does not say."""
    # The record of `lengthwise.checkpoints.extension`, which imports this file.
    if record := getattr(config, "lengthwise_extension", None):
        return int(record["original_length"])
    recorded = [rope.get("original_max_position_embeddings") for rope in ropes(config).values()]
    lengths = [*recorded, getattr(config, "max_position_embeddings", None)]
    return next((int(length) for length in lengths if length), None)


def described(rope: Mapping[str, Any]) -> str:
    """Rope parameters in words: "yarn by 4 from 4,096 tokens, base 10,000"."""
    factor, length = rope.get("factor"), rope.get(_LENGTH)
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
    if kind in ends:
        upper, lower, *defaults = ends[kind]
        high, low = (rope.get(name) or value for name, value in zip((upper, lower), defaults, strict=True))
        if high <= low:
            return f"{upper} = {high:g} is not above {lower} = {low:g}"
    factor = rope.get("factor")
    if kind in ("linear", "dynamic", "yarn", "llama3") and factor is not None and factor < 1:
        return f"factor = {factor:g} shrinks the context"
    if kind == "longrope" and len(rope.get("short_factor") or ()) != len(rope.get("long_factor") or ()):
        return "short_factor and long_factor have other lengths"
    return None
