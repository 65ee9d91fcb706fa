"""Eq. 2 on one window of text: its estimators `lattice` and `paper`, and the sums that the log keeps.

A *view* is L tokens of the window from a start in 0 .. n-1, where n = L - L//2 is the number of admissible
context lengths L//2 + 1 .. L, the current token included. Two views with starts D apart face each other in
n - D admissible rows (`PairGeometry`): each pair of admissible context lengths with this difference, once.

`lattice` compares all of these rows for all pairs of several views. `paper` is the definition: of the rows of two
views it draws one uniformly and runs just the two suffixes that end there. So both have the same law of
(position, l1, l2), hence the same expectation; docs/explanation/measuring.md has the proof.

Each pair of views weighs 1, each of its n - D cells 1 / (n - D). Under the law of the starts a cell (l1, l2) then
has expected weight 1 / n^2, the same for all: a bin of the matrix is the ratio of weighted sums, so uniform over
its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.alignment import PairGeometry
from lengthwise.measure.distributions import Distributions, compare
from lengthwise.measure.statistics import Statistic, equal_bins
from lengthwise.models.logits import NonFiniteLogits, chunk_rows
from lengthwise.results import Row
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import FullLogits, Head, Predictor

CONTEXT_BINS = 5
POSITION_BINS = 8
_CURVE = ("cells", "weight", "jeffreys")
_MATRIX = (*_CURVE, "sce")


def admissible_contexts(length: int) -> int:
    """n, the number of context lengths that Eq. 2 averages over for L = `length`."""
    return PairGeometry(length, 0).paired_positions


def window_length(length: int) -> int:
    """Tokens of text that hold the views of every start: L + n - 1."""
    return length + admissible_contexts(length) - 1


def draw_starts(rng: np.random.Generator, length: int, views: int) -> tuple[int, ...]:
    """`views` starts, independent and uniform over 0 .. n-1, sorted; equal ones are legal."""
    starts = rng.integers(admissible_contexts(length), size=views)
    return tuple(sorted(int(start) for start in starts))


@dataclass(frozen=True)
class Cells:
    """Comparisons of one pair of views. Arrays are [cells], scores in nats."""

    geometry: PairGeometry
    times: int
    """How many pairs of drawn views these are (equal starts are run once)."""
    long_rows: NDArray[np.int64]
    """Row in the view with more context; row r has r + 1 tokens of context."""
    short_rows: NDArray[np.int64]
    entropy: NDArray[np.float64]
    """H(p) + H(q)."""
    jeffreys: NDArray[np.float64]
    js: NDArray[np.float64]
    agreement: NDArray[np.float64]


@dataclass(frozen=True)
class Lattice:
    """What one window gives: entropies of all admissible rows of all drawn views, and the pairs' cells."""

    entropy_sum: float
    rows: int
    pairs: list[Cells]


@torch.no_grad()
def score_lattice(hidden: Tensor, head: Head | FullLogits, starts: Sequence[int], vocabulary: int) -> Lattice:
    """Compare the views with these sorted starts, equal ones included.

    Args:
        hidden: what the head takes, for each distinct start in ascending order: [U, L, ...].
        head: `LoadedModel.head`.
        starts: the K drawn starts.
        vocabulary: V.

    Raises:
        NonFiniteLogits: with the position in the window.
    """
    distinct, drawn = np.unique(np.asarray(starts), return_counts=True)
    views = [int(start) for start in distinct]
    length = hidden.shape[1]
    scores = _Scores(views, length, hidden.device)
    first = views[0] + PairGeometry(length, 0).short_rows.start
    step = max(1, chunk_rows(vocabulary) // len(views))
    for position in range(first, views[-1] + length, step):
        scores.add(hidden, head, position, position + step)
    return scores.lattice([int(times) for times in drawn])


class _Scores:
    """Scores of all views and pairs, filled by blocks of positions in the window."""

    def __init__(self, views: list[int], length: int, device: torch.device) -> None:
        self.views = views
        self.admissible = PairGeometry(length, 0).short_rows
        size = admissible_contexts(length)
        self.entropy = torch.full((len(views), size), torch.nan, dtype=torch.float64, device=device)
        self.geometries = {
            (one, other): PairGeometry(length, views[other] - views[one])
            for one, other in combinations_with_replacement(range(len(views)), 2)
        }
        # Jeffreys, Jensen-Shannon, agreement. A view facing itself agrees exactly: 0, 0, 1.
        self.pairs = {
            pair: torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64, device=device)[:, None].repeat(
                1, geometry.paired_positions
            )
            for pair, geometry in self.geometries.items()
        }

    def add(self, hidden: Tensor, head: Head | FullLogits, begin: int, end: int) -> None:
        """Score the admissible rows that stand at positions begin .. end - 1 of the window."""
        low, high = self.admissible.start, self.admissible.stop
        spans = {
            index: range(max(begin - start, low), min(end - start, high))
            for index, start in enumerate(self.views)
            if begin - start < high and end - start > low
        }
        rows = torch.cat([hidden[index, span.start : span.stop] for index, span in spans.items()])
        try:
            scored = Distributions.of(head.logits(rows))
        except NonFiniteLogits as error:
            raise NonFiniteLogits(self._position(spans, error.position)) from error
        blocks, offset = {}, 0
        for index, span in spans.items():
            blocks[index] = scored[offset : offset + len(span)]
            offset += len(span)
            self.entropy[index, span.start - low : span.stop - low] = blocks[index].entropy
        for (one, other), geometry in self.geometries.items():
            if one == other or one not in spans or other not in spans:
                continue
            # Pair i of the geometry is row long_rows[i] facing row short_rows[i]; which i lie in the block?
            long, short = geometry.long_rows.start, geometry.short_rows.start
            i = max(spans[one].start - long, spans[other].start - short, 0)
            stop = min(spans[one].stop - long, spans[other].stop - short, geometry.paired_positions)
            if i >= stop:
                continue
            a = blocks[one][long + i - spans[one].start : long + stop - spans[one].start]
            b = blocks[other][short + i - spans[other].start : short + stop - spans[other].start]
            found = compare(a, b)
            into = self.pairs[one, other]
            into[0, i:stop], into[1, i:stop], into[2, i:stop] = found.jeffreys, found.js, found.agreement

    def lattice(self, drawn: list[int]) -> Lattice:
        """The scores on the CPU; `drawn` says how often each view was drawn."""
        entropy = self.entropy.cpu().numpy()
        assert np.isfinite(entropy).all()
        low = self.admissible.start
        pairs = []
        for (one, other), geometry in self.geometries.items():
            times = drawn[one] * drawn[other] if one != other else drawn[one] * (drawn[one] - 1) // 2
            if times == 0:
                continue
            long_rows = np.arange(geometry.long_rows.start, geometry.long_rows.stop)
            short_rows = np.arange(geometry.short_rows.start, geometry.short_rows.stop)
            jeffreys, js, agreement = self.pairs[one, other].cpu().numpy()
            both = entropy[one, long_rows - low] + entropy[other, short_rows - low]
            pairs.append(Cells(geometry, times, long_rows, short_rows, both, jeffreys, js, agreement))
        total = float(np.array(drawn) @ entropy.sum(axis=1))
        return Lattice(total, sum(drawn) * entropy.shape[1], pairs)

    def _position(self, spans: dict[int, range], row: int) -> int:
        for index, span in spans.items():
            if row < len(span):
                return self.views[index] + span[row]
            row -= len(span)
        raise AssertionError(row)


@dataclass(frozen=True)
class Suffixes:
    """Two suffixes that end at the same token: where they start in the window and how long they are."""

    geometry: PairGeometry
    starts: tuple[int, int]
    lengths: tuple[int, int]


def draw_suffixes(rng: np.random.Generator, length: int) -> Suffixes:
    """Two starts as for two views, then one of their facing rows, uniformly."""
    first, second = draw_starts(rng, length, 2)
    geometry = PairGeometry(length, second - first)
    cell = int(rng.integers(geometry.paired_positions))
    long_row, short_row = geometry.long_rows.start + cell, geometry.short_rows.start + cell
    return Suffixes(geometry, (first, second), (long_row + 1, short_row + 1))


@torch.no_grad()
def score_suffixes(
    model: Predictor, ids: NDArray[np.integer], suffixes: Suffixes, bos_id: int | None
) -> Lattice:
    """Run just the two suffixes of the window `ids` and compare their last rows.

    Raises:
        NonFiniteLogits: with the position in the window.
    """
    scored = []
    for start, length in zip(suffixes.starts, suffixes.lengths, strict=True):
        try:
            scored.append(Distributions.of(model.next_logits(view(ids, start, length, bos_id))))
        except NonFiniteLogits as error:
            raise NonFiniteLogits(start + length - 1) from error
        if suffixes.geometry.offset == 0:
            scored.append(scored[0])
            break
    long, short = scored
    found = compare(long, short)
    entropy = (long.entropy + short.entropy).double().cpu().numpy()
    cells = Cells(
        geometry=suffixes.geometry,
        times=1,
        long_rows=np.array([suffixes.lengths[0] - 1]),
        short_rows=np.array([suffixes.lengths[1] - 1]),
        entropy=entropy,
        jeffreys=found.jeffreys.double().cpu().numpy(),
        js=found.js.double().cpu().numpy(),
        agreement=found.agreement.double().cpu().numpy(),
    )
    return Lattice(float(entropy.sum()), 2, [cells])


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


def window_statistics(records: Sequence[dict[str, Any]], length: int) -> list[Statistic]:
    """The statistics of one L from the windows' records."""
    blank = Row(model="", task="misalignment", metric="", value=None, length=length)

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
