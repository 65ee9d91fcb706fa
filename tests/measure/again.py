"""The rows of a run, made again from a log alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from lengthwise.measure.comparison import measurement_of
from lengthwise.results import Results
from lengthwise.samples import SampleLog


def summarised(log: SampleLog, results: Results) -> SimpleNamespace:
    """`rows` as they follow from the records and the recorded settings."""
    measurement, name = measurement_of(results), results.model_name
    records = [log[key] for key in results.records]
    statistics = measurement.statistics(records)
    return SimpleNamespace(rows=[replace(row, model=name) for row in measurement.rows(statistics, records)])
