"""Models: found, loaded, read, extended and saved. Nothing here imports torch before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.models.embedded import EMBEDDED, EmbeddedModel
    from lengthwise.models.extension import Extension, extend
    from lengthwise.models.head import FullLogits, Head, find_head, hidden_states_for
    from lengthwise.models.hidden import capture_hidden_states, final_hidden_states, unwrap
    from lengthwise.models.loaded_model import LoadedModel, target_losses, weights_of
    from lengthwise.models.loading import DTYPES, ModelLike, as_model, load, open_model
    from lengthwise.models.logits import NonFiniteLogits, naming_bad_logits
    from lengthwise.models.plan import Cost, Plan
    from lengthwise.models.predictor import Predictor, Reader
    from lengthwise.models.reading import CachedReader, PlainReader, reader_kind
    from lengthwise.models.resolve import read_config, read_tokenizer
    from lengthwise.models.saving import push_to_hub
    from lengthwise.models.served.endpoint import Endpoint

_HOMES = {
    "DTYPES": "loading",
    "EMBEDDED": "embedded",
    "CachedReader": "reading",
    "Cost": "plan",
    "EmbeddedModel": "embedded",
    "Endpoint": "served.endpoint",
    "Extension": "extension",
    "FullLogits": "head",
    "Head": "head",
    "LoadedModel": "loaded_model",
    "ModelLike": "loading",
    "NonFiniteLogits": "logits",
    "PlainReader": "reading",
    "Plan": "plan",
    "Predictor": "predictor",
    "Reader": "predictor",
    "as_model": "loading",
    "capture_hidden_states": "hidden",
    "extend": "extension",
    "final_hidden_states": "hidden",
    "find_head": "head",
    "hidden_states_for": "head",
    "load": "loading",
    "naming_bad_logits": "logits",
    "open_model": "loading",
    "push_to_hub": "saving",
    "read_config": "resolve",
    "read_tokenizer": "resolve",
    "reader_kind": "reading",
    "target_losses": "loaded_model",
    "unwrap": "hidden",
    "weights_of": "loaded_model",
}

__all__ = [
    "DTYPES",
    "EMBEDDED",
    "CachedReader",
    "Cost",
    "EmbeddedModel",
    "Endpoint",
    "Extension",
    "FullLogits",
    "Head",
    "LoadedModel",
    "ModelLike",
    "NonFiniteLogits",
    "PlainReader",
    "Plan",
    "Predictor",
    "Reader",
    "as_model",
    "capture_hidden_states",
    "extend",
    "final_hidden_states",
    "find_head",
    "hidden_states_for",
    "load",
    "naming_bad_logits",
    "open_model",
    "push_to_hub",
    "read_config",
    "read_tokenizer",
    "reader_kind",
    "target_losses",
    "unwrap",
    "weights_of",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
