"""EABF's query scaling in a transformers model that was extended by it."""

from __future__ import annotations

from transformers import PreTrainedModel

from lengthwise.models.attention import scale_queries
from lengthwise.models.extension.record import Extension
from lengthwise.positions.attention.query_scale import QueryScale


def attach_query_scale(base: PreTrainedModel, extension: Extension) -> None:
    """Scale the queries as the extension says; raises as `scale_queries`."""
    skip_layers: int = extension.options["skip_layers"]
    scale_queries(base, QueryScale(original_length=extension.original_length, skip_layers=skip_layers))
