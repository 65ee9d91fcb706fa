"""From comparisons to sums by bin, and from these to statistics: what one window adds to Eq. 2's numbers.

Each pair of views weighs 1, each of its n - D cells 1 / (n - D). Under the law of the starts a cell
(l1, l2) then has expected weight 1 / n^2, the same for all: a bin of the matrix is the ratio of weighted
sums, so uniform over its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.alignment import PairGeometry
from lengthwise.measure.lattice import Lattice
from lengthwise.measure.running import equal_bins
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONTEXT_BINS = 5
POSITION_BINS = 8
_CURVE = ("cells", "weight", "jeffreys")
_MATRIX = (*_CURVE, "sce")


def window_sums(lattice: Lattice, length: int) -> dict[str, Any]:
    """The sums that the log keeps of one window."""
    contexts, positions = _context_edges(length), _position_edges(length)
    matrix = np.zeros((len(_MATRIX), len(_bin_pairs(contexts))))
    by_position = np.zeros((len(_CURVE), len(positions) - 1))
    means = np.zeros(3)
    for pair in lattice.pairs:
        weight = pair.times / len(pair.jeffreys)
        means += weight * np.array([pair.jeffreys.sum(), pair.js.sum(), pair.agreement.sum()])
        each = np.full(len(pair.jeffreys), weight)
        columns = (
            pair.times * np.ones(len(each)),
            each,
            each * pair.jeffreys,
            each * (pair.entropy + pair.jeffreys),
        )
        cell = _pair_index(_bin(pair.long_rows, contexts), _bin(pair.short_rows, contexts))
        matrix += _binned(cell, columns[: len(_MATRIX)], matrix.shape[1])
        place = _bin(pair.short_rows, positions)
        by_position += _binned(place, columns[: len(_CURVE)], by_position.shape[1])
    return {
        "entropy": lattice.entropy_sum,
        "rows": lattice.rows,
        "pairs": sum(pair.times for pair in lattice.pairs),
        "cells": sum(pair.times * len(pair.jeffreys) for pair in lattice.pairs),
        "jeffreys": float(means[0]),
        "js": float(means[1]),
        "agreement": float(means[2]),
        "matrix": dict(zip(_MATRIX, matrix.tolist(), strict=True)),
        "position": dict(zip(_CURVE, by_position.tolist(), strict=True)),
    }


def window_statistics(records: Sequence[dict[str, Any]], length: int, model_name: str) -> list[Statistic]:
    """The statistics of one L from the windows' records."""

    blank = Row(model=model_name, task="misalignment", metric="", value=None, length=length)

    def row(metric: str, **fields: Any) -> Row:
        return replace(blank, metric=metric, **fields)

    def ratio_of(name: str, by: str) -> list[tuple[str, list[float]]]:
        return [(record["document"], [record[name], record[by]]) for record in records]

    cells = sum(record["cells"] for record in records)
    statistics = [
        Statistic.of(
            row("sce", n=cells),
            [
                (record["document"], [record[name] for name in ("entropy", "rows", "jeffreys", "pairs")])
                for record in records
            ],
            estimator=_sce,
        ),
        Statistic.of(
            row("entropy", n=sum(record["rows"] for record in records)),
            [(document, [2 * total, count]) for document, (total, count) in ratio_of("entropy", "rows")],
        ),
        Statistic.of(row("jeffreys", n=cells), ratio_of("jeffreys", "pairs")),
        Statistic.of(row("js", n=cells), ratio_of("js", "pairs")),
        Statistic.of(row("top1_agreement", n=cells, unit="share"), ratio_of("agreement", "pairs")),
    ]

    def binned(which: str, metric: str, index: int, **where: int) -> Statistic:
        sums = [(record["document"], record[which]) for record in records]
        n = round(sum(of_window["cells"][index] for _, of_window in sums))
        totals = [(document, [found[metric][index], found["weight"][index]]) for document, found in sums]
        return Statistic.of(row(metric, n=n, **where), totals)

    contexts, positions = _context_edges(length), _position_edges(length)
    for metric in ("jeffreys", "sce"):
        for index, (one, other) in enumerate(_bin_pairs(contexts)):
            bins = {"context": contexts[one + 1], "context_other": contexts[other + 1]}
            statistics.append(binned("matrix", metric, index, **bins))
    for index, (begin, end) in enumerate(pairwise(positions)):
        statistics.append(binned("position", "jeffreys", index, position=begin, position_end=end))
    return statistics


def _binned(
    bins: NDArray[np.int64], columns: Sequence[NDArray[np.float64]], count: int
) -> NDArray[np.float64]:
    """The sum of each column in each bin: [columns, count]."""
    return np.stack([np.bincount(bins, column, count).astype(np.float64) for column in columns])


def _sce(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """2 * mean entropy of a row + mean over pairs of their mean Jeffreys divergence."""
    entropy, rows, jeffreys, pairs = totals.T
    return 2 * entropy / rows + jeffreys / pairs


def _context_edges(length: int) -> list[int]:
    """Edges over the admissible rows. Row r has context r + 1: a bin's edge is its longest context."""
    return equal_bins(_first_row(length), length, CONTEXT_BINS)


def _position_edges(length: int) -> list[int]:
    return equal_bins(_first_row(length), length, POSITION_BINS)


def _first_row(length: int) -> int:
    return PairGeometry(length, 0).short_rows.start


def _bin(rows: NDArray[np.int64], edges: Sequence[int]) -> NDArray[np.int64]:
    return np.searchsorted(np.asarray(edges[1:]), rows, side="right")


def _bin_pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of bins (longer context, shorter context), in the order of `_pair_index`."""
    return [(one, other) for one in range(len(edges) - 1) for other in range(one + 1)]


def _pair_index(one: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
    return one * (one + 1) // 2 + other
