"""The modules of a model that place its tokens: tables of positions, and rotary embeddings that follow the input."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

POSITION_TABLES = frozenset(
    {"wpe", "embed_positions", "position_embedding", "position_embeddings", "positions_embed"}
)
"""Names of tables with one row per position in transformers' models."""


def towers(base: PreTrainedModel) -> list[PreTrainedModel]:
    """Models for images and sounds that are part of a model of texts."""
    of_text = {base.config.model_type, base.config.get_text_config().model_type}
    parts = [part for part in base.modules() if isinstance(part, PreTrainedModel)]
    return [part for part in parts if part.config.model_type not in of_text]


def position_tables(base: PreTrainedModel) -> list[nn.Embedding]:
    """Those for the positions in a text: a tower has one of its own (Gemma 3)."""
    elsewhere = {module for tower in towers(base) for module in tower.modules()}
    return [
        module
        for name, module in base.named_modules()
        if isinstance(module, nn.Embedding) and name.rpartition(".")[2] in POSITION_TABLES
        if module not in elsewhere
    ]


def following_ropes(model: nn.Module) -> list[Any]:
    """The rotary embeddings whose frequencies follow the length of the input; most models have none."""
    kinds = [(module, getattr(module, "rope_type", None)) for module in model.modules()]
    # The substring is transformers' own test.
    return [
        module
        for module, kind in kinds
        for each in (kind.values() if isinstance(kind, dict) else [kind])
        if isinstance(each, str) and ("dynamic" in each or each == "longrope")
    ]


def frequencies_of(ropes: list[Any], *, fresh: bool = False) -> list[dict[str, Any]]:
    """Of each of `following_ropes` its frequencies, and up to which length they hold.

    As the last pass left them, or `fresh`, as before the first: a number would depend on what was read before.
    transformers (5.23: `dynamic_rope_update`) keeps those of the longest text so far, dynamic NTK's even where the
    next text is exactly as long as the original length.
    """
    built = [(module, _as_built(module)) for module in ropes]
    # Before the first pass, ropes by type of layer lack some of them.
    return [
        each if fresh else {name: _copied(getattr(rope, name, each[name])) for name in each}
        for rope, each in built
    ]


def set_frequencies(ropes: list[Any], kept: list[dict[str, Any]]) -> None:
    """Let the next pass begin with what `frequencies_of` gave."""
    for rope, values in zip(ropes, kept, strict=True):
        for name, value in values.items():
            setattr(rope, name, _copied(value))


def _as_built(module: Any) -> dict[str, Any]:
    """The attributes that `dynamic_rope_update` changes, with the values that it begins with."""
    found: dict[str, Any] = {}
    for name in dir(module):
        if name.endswith("original_inv_freq"):
            prefix = name.removesuffix("original_inv_freq")
            found[f"{prefix}inv_freq"] = _copied(getattr(module, name))
            if hasattr(module, "original_max_seq_len"):
                found[f"{prefix}max_seq_len_cached"] = module.original_max_seq_len
    return found


def _copied(value: Any) -> Any:
    # LongRoPE writes into its tensor.
    return value.clone() if isinstance(value, Tensor) else value
