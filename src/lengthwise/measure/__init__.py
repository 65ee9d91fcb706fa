"""Measurements with intervals: misalignment, perplexity by length, recall by distance, effective length."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.measure.comparison import compare_runs as compare_runs
    from lengthwise.measure.comparison import paired_difference as paired_difference
    from lengthwise.measure.correlation import correlate as correlate
    from lengthwise.measure.influence import Influence as Influence
    from lengthwise.measure.limit import Limit as Limit
    from lengthwise.measure.longppl import LongPpl as LongPpl
    from lengthwise.measure.measurement import Item as Item
    from lengthwise.measure.measurement import Measurement as Measurement
    from lengthwise.measure.measurement import WindowMeasurement as WindowMeasurement
    from lengthwise.measure.misalignment import Misalignment as Misalignment
    from lengthwise.measure.perplexity import Perplexity as Perplexity
    from lengthwise.measure.recall import Recall as Recall
    from lengthwise.measure.runner import run as run
    from lengthwise.measure.served import Served as Served
    from lengthwise.measure.table import MEASUREMENTS as MEASUREMENTS

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

__all__ = sorted(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
