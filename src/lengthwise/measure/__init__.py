"""Measurements with intervals: misalignment, perplexity by length, recall by distance, effective length."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.measure.comparison import compare_runs, paired_difference
    from lengthwise.measure.correlation import correlate
    from lengthwise.measure.influence import Influence
    from lengthwise.measure.limit import Limit
    from lengthwise.measure.longppl import LongPpl
    from lengthwise.measure.measurement import Item, Measurement, WindowMeasurement
    from lengthwise.measure.misalignment import Misalignment
    from lengthwise.measure.perplexity import Perplexity
    from lengthwise.measure.recall import Recall
    from lengthwise.measure.runner import run
    from lengthwise.measure.served import Served
    from lengthwise.measure.table import MEASUREMENTS

_HOMES = {
    "MEASUREMENTS": "table",
    "Influence": "influence",
    "Item": "measurement",
    "Limit": "limit",
    "LongPpl": "longppl",
    "Measurement": "measurement",
    "Misalignment": "misalignment",
    "Perplexity": "perplexity",
    "Recall": "recall",
    "Served": "served",
    "WindowMeasurement": "measurement",
    "compare_runs": "comparison",
    "correlate": "correlation",
    "paired_difference": "comparison",
    "run": "runner",
}

__all__ = [
    "MEASUREMENTS",
    "Influence",
    "Item",
    "Limit",
    "LongPpl",
    "Measurement",
    "Misalignment",
    "Perplexity",
    "Recall",
    "Served",
    "WindowMeasurement",
    "compare_runs",
    "correlate",
    "paired_difference",
    "run",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
