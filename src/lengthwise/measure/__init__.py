"""Measurements with intervals: misalignment, perplexity by length, recall by distance, effective length."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.measure.limit import measure_limit
    from lengthwise.measure.longppl import measure_longppl
    from lengthwise.measure.measurement import Measurement, paired_difference
    from lengthwise.measure.misalignment import measure_misalignment
    from lengthwise.measure.perplexity import perplexity_by_length
    from lengthwise.measure.recall import measure_recall

_HOMES = {
    "Measurement": "measurement",
    "measure_limit": "limit",
    "measure_longppl": "longppl",
    "measure_misalignment": "misalignment",
    "measure_recall": "recall",
    "paired_difference": "measurement",
    "perplexity_by_length": "perplexity",
}

__all__ = [
    "Measurement",
    "measure_limit",
    "measure_longppl",
    "measure_misalignment",
    "measure_recall",
    "paired_difference",
    "perplexity_by_length",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
