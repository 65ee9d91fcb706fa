"""Measurements with intervals: misalignment, perplexity by length, recall by distance, effective length."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lengthwise.measure.table import MEASUREMENTS

if TYPE_CHECKING:
    from lengthwise.measure.comparison import compare_runs
    from lengthwise.measure.correlation import Correlation, correlate, rank_correlation
    from lengthwise.measure.limit import LimitSpec, measure_limit
    from lengthwise.measure.longppl import LongPplSpec, measure_longppl
    from lengthwise.measure.measurement import Measurement, paired_difference
    from lengthwise.measure.misalignment import MisalignmentSpec, measure_misalignment
    from lengthwise.measure.perplexity import PerplexitySpec, measure_perplexity, perplexity_by_length
    from lengthwise.measure.recall import RecallSpec, measure_recall
    from lengthwise.measure.run_folder import read_measurement, run_measurement
    from lengthwise.measure.served import ServedSpec, measure_served
    from lengthwise.sparsity.influential_tokens import InfluenceSpec, measure_influence

_HOMES = {
    "Correlation": "lengthwise.measure.correlation",
    "Measurement": "lengthwise.measure.measurement",
    "compare_runs": "lengthwise.measure.comparison",
    "correlate": "lengthwise.measure.correlation",
    "paired_difference": "lengthwise.measure.measurement",
    "perplexity_by_length": "lengthwise.measure.perplexity",
    "rank_correlation": "lengthwise.measure.correlation",
    "read_measurement": "lengthwise.measure.run_folder",
    "run_measurement": "lengthwise.measure.run_folder",
} | {
    name: entry.module
    for entry in MEASUREMENTS.values()
    if entry.task
    for name in (entry.function, entry.spec)
}

__all__ = [
    "MEASUREMENTS",
    "Correlation",
    "InfluenceSpec",
    "LimitSpec",
    "LongPplSpec",
    "Measurement",
    "MisalignmentSpec",
    "PerplexitySpec",
    "RecallSpec",
    "ServedSpec",
    "compare_runs",
    "correlate",
    "measure_influence",
    "measure_limit",
    "measure_longppl",
    "measure_misalignment",
    "measure_perplexity",
    "measure_recall",
    "measure_served",
    "paired_difference",
    "perplexity_by_length",
    "rank_correlation",
    "read_measurement",
    "run_measurement",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
