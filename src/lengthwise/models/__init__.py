"""Models: found, loaded, and their output head proven. Nothing here imports torch before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.models.embedded import EMBEDDED, EmbeddedModel
    from lengthwise.models.extension import Extension, extend
    from lengthwise.models.head import FullLogits, Head, find_head, hidden_states_for
    from lengthwise.models.hidden import capture_hidden_states, final_hidden_states, unwrap
    from lengthwise.models.loading import DTYPES, LoadedModel, load

_HOMES = {
    "DTYPES": "loading",
    "EMBEDDED": "embedded",
    "EmbeddedModel": "embedded",
    "Extension": "extension",
    "FullLogits": "head",
    "Head": "head",
    "LoadedModel": "loading",
    "capture_hidden_states": "hidden",
    "extend": "extension",
    "final_hidden_states": "hidden",
    "find_head": "head",
    "hidden_states_for": "head",
    "load": "loading",
    "unwrap": "hidden",
}

__all__ = [
    "DTYPES",
    "EMBEDDED",
    "EmbeddedModel",
    "Extension",
    "FullLogits",
    "Head",
    "LoadedModel",
    "capture_hidden_states",
    "extend",
    "final_hidden_states",
    "find_head",
    "hidden_states_for",
    "load",
    "unwrap",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
