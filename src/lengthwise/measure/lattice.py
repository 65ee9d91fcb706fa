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
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.alignment import PairGeometry
from lengthwise.measure.distributions import Distributions, compare
from lengthwise.measure.statistics import equal_bins
from lengthwise.models.head import NonFiniteLogits, chunk_rows
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import FullLogits, Head, Predictor

_CONTEXT_BINS = 5
_POSITION_BINS = 8


def admissible_contexts(length: int) -> int:
    """n, the number of context lengths that Eq. 2 averages over for L = `length`."""
    return PairGeometry(length, 0).paired_positions


def window_length(length: int) -> int:
    """Tokens of text that hold the views of every start: L + n - 1."""
    return length + admissible_contexts(length) - 1


def draw_starts(rng: np.random.Generator, length: int, views: int) -> tuple[int, ...]:
    """`views` starts, independent and uniform over 0 .. n-1, sorted; equal ones are legal."""
    return tuple(sorted(rng.integers(admissible_contexts(length), size=views).tolist()))


@dataclass(frozen=True)
class Lattice:
    """What one window gives: the entropies of all admissible rows of all drawn views, and the cells of all pairs.

    Arrays are [cells], scores in nats. A cell is two rows that face each other.
    """

    entropy_sum: float
    rows: int
    pairs: int
    times: NDArray[np.float64]
    """How many pairs of drawn views the cell is of (equal starts are run once)."""
    weight: NDArray[np.float64]
    """`times` by the cells of the pair."""
    long_rows: NDArray[np.float64]
    """Row in the view with more context; row r has r + 1 tokens of context."""
    short_rows: NDArray[np.float64]
    entropy: NDArray[np.float64]
    """H(p) + H(q)."""
    jeffreys: NDArray[np.float64]
    js: NDArray[np.float64]
    agreement: NDArray[np.float64]


@torch.no_grad()
def score_lattice(hidden: Tensor, head: Head | FullLogits, starts: Sequence[int], vocabulary: int) -> Lattice:
    """Compare the views with these starts, equal ones included, by blocks of positions in the window.

    Args:
        hidden: what the head takes, for each distinct start in ascending order: [U, L, ...].
        head: `LoadedModel.head`.
        starts: the K drawn starts.
        vocabulary: V.

    Raises:
        NonFiniteLogits: with the position in the window.
    """
    distinct, drawn = (found.tolist() for found in np.unique(np.asarray(starts), return_counts=True))
    length = hidden.shape[1]
    # Where the admissible rows of each view are in the window.
    spans = [range(start + _first_row(length), start + length) for start in distinct]
    first, end = spans[0].start, spans[-1].stop
    entropy = hidden.new_zeros((len(spans), end - first), dtype=torch.float64)
    scores = {
        pair: hidden.new_zeros((3, end - first), dtype=torch.float64)
        for pair in combinations(range(len(spans)), 2)
    }
    step = max(1, chunk_rows(vocabulary) // len(spans))
    for begin in range(first, end, step):
        here = [_overlap(span, range(begin, begin + step)) for span in spans]
        rows = [hidden[i, some.start - distinct[i] : some.stop - distinct[i]] for i, some in enumerate(here)]
        try:
            scored = Distributions.of(head.logits(torch.cat(rows)))
        except NonFiniteLogits as error:
            positions = [position for some in here for position in some]
            raise NonFiniteLogits(positions[error.position]) from error
        blocks = [scored[a:b] for a, b in pairwise(np.cumsum([0, *map(len, here)]))]
        for i, some in enumerate(here):
            entropy[i, some.start - first : some.stop - first] = blocks[i].entropy
        for pair, found in scores.items():
            if both := _overlap(*(here[i] for i in pair)):
                a, b = (blocks[i][both.start - here[i].start : both.stop - here[i].start] for i in pair)
                found[:, both.start - first : both.stop - first] = compare(a, b)
    entropies = entropy.cpu().numpy()
    cells = []
    for one, other in combinations_with_replacement(range(len(spans)), 2):
        times = drawn[one] * drawn[other] if one != other else drawn[one] * (drawn[one] - 1) // 2
        both = _overlap(spans[one], spans[other])
        if times == 0:
            continue
        positions, at = np.arange(both.start, both.stop), slice(both.start - first, both.stop - first)
        size = np.ones(len(both))
        # Jeffreys, Jensen-Shannon, agreement. A view facing itself agrees exactly.
        found = [0 * size, 0 * size, size] if one == other else scores[one, other][:, at].cpu().numpy()
        both_entropies = entropies[one, at] + entropies[other, at]
        shared = (
            times * size,
            times / len(both) * size,
            positions - distinct[one],
            positions - distinct[other],
        )
        cells.append(np.stack([*shared, both_entropies, *found]))
    total = float(np.array(drawn) @ entropies.sum(axis=1))
    views = sum(drawn)
    rows_drawn, pairs = views * admissible_contexts(length), views * (views - 1) // 2
    return Lattice(total, rows_drawn, pairs, *np.concatenate(cells, axis=1))


def draw_suffixes(rng: np.random.Generator, length: int) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Two starts as for two views, then one of their facing rows, uniformly: starts and lengths of two suffixes."""
    starts = draw_starts(rng, length, 2)
    geometry = PairGeometry(length, starts[1] - starts[0])
    cell = int(rng.integers(geometry.paired_positions))
    return starts, (geometry.long_rows.start + cell + 1, geometry.short_rows.start + cell + 1)


@torch.no_grad()
def score_suffixes(
    model: Predictor,
    ids: NDArray[np.integer],
    starts: Sequence[int],
    lengths: Sequence[int],
    bos_id: int | None,
) -> Lattice:
    """Run just two suffixes of the window `ids`, the longer first, and compare their last rows.

    Raises:
        NonFiniteLogits: with the position in the window.
    """
    scored = []
    for start, length in dict.fromkeys(zip(starts, lengths, strict=True)):
        try:
            scored.append(Distributions.of(model.next_logits(view(ids, start, length, bos_id))))
        except NonFiniteLogits as error:
            raise NonFiniteLogits(start + length - 1) from error
    # Equal suffixes are run once.
    long, short = scored[0], scored[-1]
    entropy = (long.entropy + short.entropy).double().cpu().numpy()
    one = np.ones(1)
    long_row, short_row = (np.array([length - 1.0]) for length in lengths)
    jeffreys, js, agreement = compare(long, short).double().cpu().numpy()
    total = float(entropy.sum())
    return Lattice(total, 2, 1, one, one, long_row, short_row, entropy, jeffreys, js, agreement)


def window_sums(lattice: Lattice, length: int) -> dict[str, Any]:
    """The sums that the log keeps of one window: of all cells, by two bins of contexts, by bin of the position."""
    weight = lattice.weight
    columns = {
        "cells": lattice.times,
        "weight": weight,
        "jeffreys": weight * lattice.jeffreys,
        "sce": weight * (lattice.entropy + lattice.jeffreys),
    }
    contexts, positions = context_edges(length), position_edges(length)
    one, other = (_bin(rows, contexts) for rows in (lattice.long_rows, lattice.short_rows))
    cell, cells = one * (one + 1) // 2 + other, len(bin_pairs(contexts))
    place, places = _bin(lattice.short_rows, positions), len(positions) - 1
    curve = [name for name in columns if name != "sce"]
    return {
        "entropy": lattice.entropy_sum,
        "rows": lattice.rows,
        "pairs": lattice.pairs,
        "cells": int(lattice.times.sum()),
        "jeffreys": float(weight @ lattice.jeffreys),
        "js": float(weight @ lattice.js),
        "agreement": float(weight @ lattice.agreement),
        "matrix": {name: np.bincount(cell, column, cells).tolist() for name, column in columns.items()},
        "position": {name: np.bincount(place, columns[name], places).tolist() for name in curve},
    }


def context_edges(length: int) -> list[int]:
    """Edges over the admissible rows. Row r has context r + 1: a bin's edge is its longest context."""
    return equal_bins(_first_row(length), length, _CONTEXT_BINS)


def position_edges(length: int) -> list[int]:
    """Edges over the admissible rows, for the curve by the row of the shorter context."""
    return equal_bins(_first_row(length), length, _POSITION_BINS)


def bin_pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of bins (longer context, shorter context), in the order of the sums."""
    return [(one, other) for one in range(len(edges) - 1) for other in range(one + 1)]


def _first_row(length: int) -> int:
    return PairGeometry(length, 0).short_rows.start


def _bin(rows: NDArray[np.float64], edges: Sequence[int]) -> NDArray[np.int64]:
    return np.searchsorted(np.asarray(edges[1:]), rows, side="right")


def _overlap(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
