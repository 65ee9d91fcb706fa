"""Effective length by a model's own score: how far it keeps most of its score at the shortest length (NoLiMa)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import Statistic, ratio
from lengthwise.results import Row

KEPT = 0.85
"""The share of its score at the shortest length that a model keeps up to its effective length."""


def effective_length(row: Row, records: Sequence[Record], lengths: Sequence[int]) -> Statistic:
    """The longest of `lengths`, ascending, up to which every score is at least `KEPT` of that at the shortest.

    Undefined where a length has no score, as in resamples of an interrupted run, or the shortest length scores 0.
    """

    def totals(record: Record) -> list[float]:
        sums = np.zeros((len(lengths), 2))
        sums[lengths.index(record["length"])] = record["score"], 1.0
        return sums.ravel().tolist()

    def estimator(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = np.stack([ratio(sums[:, 2 * at : 2 * at + 2]) for at in range(len(lengths))], axis=1)
        # Just as much is enough, however the product is rounded: 17 of 29 of 20 of 29.
        holds = (scores >= KEPT * scores[:, :1] * (1 - 1e-12)).cumprod(axis=1)
        found = np.asarray(lengths, dtype=np.float64)[holds.sum(axis=1) - 1]
        return np.where(np.isfinite(scores).all(axis=1) & (scores[:, 0] > 0), found, np.nan)

    row = replace(row, unit="tokens", n=len(records))
    return Statistic.of(
        row, [(record["document"], totals(record)) for record in records], estimator=estimator
    )


def clear_effective_lengths(rows: Sequence[Row]) -> list[Row]:
    """The rows, without effective lengths of scores that are not clearly above guessing at the shortest length.

    Without ranked answers guessing is right with probability 0. An effective length that is the longest one
    measured is a lower bound.
    """
    found: list[Row] = []
    for row in rows:
        if row.metric == "effective_length":
            own = [
                each for each in rows if each.task == row.task and each.depth is None and each.bucket is None
            ]
            lengths = sorted(each.length for each in own if each.length is not None)
            shortest = [each for each in own if each.length == lengths[0]]
            chance = next((each.value or 0.0 for each in shortest if each.metric == "chance"), 0.0)
            base = next(each for each in shortest if each.unit == "share" and each.metric != "chance")
            if base.ci_low is None or base.ci_low <= chance:
                continue
            row = replace(row, at_least=True) if row.value == lengths[-1] else row
        found.append(row)
    return found
