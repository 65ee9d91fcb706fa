"""Learned tables of positions, of a model that is not given its positions by rope or ALiBi; and towers."""

from __future__ import annotations

from torch import nn
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
