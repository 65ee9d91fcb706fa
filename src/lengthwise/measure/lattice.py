"""Eq. 2 on one window of text: its estimators `lattice` and `paper`, and the sums that the log keeps.

A *view* is L tokens of the window from a start in 0 .. n-1, where n = L - L//2 is the number of admissible
context lengths L//2 + 1 .. L, the current token included. Two views with starts D apart face each other in
n - D admissible rows (`PairGeometry`): each pair of admissible context lengths with this difference, once.

`lattice` compares all of these rows for all pairs of several views. `paper` is the definition: of the rows of two
views it draws one uniformly and runs just the two suffixes that end there. So both have the same law of
(position, l1, l2), hence the same expectation; docs/definitions/measuring.md has the proof.

Each pair of views weighs 1, each of its n - D cells 1 / (n - D). Under the law of the starts a cell (l1, l2) then
has expected weight 1 / n^2, the same for all: a bin of the matrix is the ratio of weighted sums, so uniform over
its cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement

import numpy as np
import torch
from numpy.typing import NDArray

from lengthwise.alignment import PairGeometry
from lengthwise.checkpoints.head import chunk_rows, locating_bad_logits
from lengthwise.measure.distributions import Distributions, compare, distributions
from lengthwise.measure.measurement import Record
from lengthwise.measure.statistics import equal_bins
from lengthwise.subjects.reading import Predictor, Reading, Want
from lengthwise.subjects.rows import Rows
from lengthwise.text import view

_CONTEXT_BINS = 5
_POSITION_BINS = 8
_COLUMNS = ("times", "weight", "long_rows", "short_rows", "entropy", "jeffreys", "js", "agreement")
_CELL = [(name, float) for name in _COLUMNS]
"""The columns of `cells`, each two rows that face each other; scores in nats.

`times`: how many pairs of drawn views the cell is of (equal starts are run once); `weight`: `times` by the cells of
the pair; the row in the view with more context and in the other (row r has r + 1 tokens of context); H(p) + H(q).
"""


def admissible_contexts(length: int) -> int:
    """n, the number of context lengths that Eq. 2 averages over for L = `length`."""
    return PairGeometry(length, 0).paired_positions


def window_length(length: int) -> int:
    """Tokens of text that hold the views of every start: L + n - 1."""
    return length + admissible_contexts(length) - 1


def draw_starts(rng: np.random.Generator, length: int, views: int) -> tuple[int, ...]:
    """`views` starts, independent and uniform over 0 .. n-1, sorted; equal ones are legal."""
    return tuple(sorted(rng.integers(admissible_contexts(length), size=views).tolist()))


@torch.no_grad()
def score_lattice(views: Sequence[Rows], starts: Sequence[int]) -> Record:
    """Compare the views with these starts, equal ones included, by blocks of positions in the window.

    Args:
        views: the L rows of each distinct start, in ascending order.
        starts: the K drawn starts.

    Returns:
        The sum `entropy` and the number `rows` of all admissible rows of all drawn views, the number of `pairs` of
        views, and their `cells`, a record array.

    NonFiniteLogits has the position in the window.
    """
    distinct, drawn = (found.tolist() for found in np.unique(np.asarray(starts), return_counts=True))
    length, vocabulary, device = len(views[0]), views[0].vocab_size, views[0].device
    # Where the admissible rows of each view are in the window.
    spans = [range(start + length // 2, start + length) for start in distinct]
    first, end = spans[0].start, spans[-1].stop
    entropy = torch.zeros((len(spans), end), dtype=torch.float64, device=device)
    pairs = combinations(range(len(spans)), 2)
    scores = {pair: torch.zeros((3, end), dtype=torch.float64, device=device) for pair in pairs}
    step = max(1, chunk_rows(vocabulary, device) // len(spans))
    for begin in range(first, end, step):
        here = [_overlap(span, range(begin, begin + step)) for span in spans]
        blocks = {i: _scored(views[i], some, distinct[i]) for i, some in enumerate(here) if some}
        for i, (_, _, own, _) in blocks.items():
            entropy[i, here[i].start : here[i].stop] = own
        for pair, found in scores.items():
            if both := _overlap(*(here[i] for i in pair)):
                a, b = (_rows(blocks[i], both.start - here[i].start, len(both)) for i in pair)
                found[:, both.start : both.stop] = compare(a, b)
    entropies = entropy.cpu().numpy()
    cells = []
    for one, other in combinations_with_replacement(range(len(spans)), 2):
        times = drawn[one] * drawn[other] if one != other else drawn[one] * (drawn[one] - 1) // 2
        if times == 0:
            continue
        both = _overlap(spans[one], spans[other])
        at, size = slice(both.start, both.stop), np.ones(len(both))
        # Jeffreys, Jensen-Shannon, agreement. A view facing itself agrees exactly.
        found = [0 * size, 0 * size, size] if one == other else scores[one, other][:, at].cpu().numpy()
        rows = [np.array(both) - distinct[view] for view in (one, other)]
        weights = [times * size, times / len(both) * size]
        cells.append([*weights, *rows, entropies[one, at] + entropies[other, at], *found])
    count = sum(drawn)
    return {
        "entropy": float(np.array(drawn) @ entropies.sum(axis=1)),
        "rows": count * admissible_contexts(length),
        "pairs": count * (count - 1) // 2,
        "cells": np.rec.fromarrays(np.concatenate(cells, axis=1), dtype=_CELL),
    }


def _scored(view: Rows, positions: range, start: int) -> Distributions:
    """The distributions of a view at these positions in the window, where the view begins at `start`."""
    with locating_bad_logits(positions.start):
        return distributions(view.logits(slice(positions.start - start, positions.stop - start)))


def _rows(of: Distributions, first: int, count: int) -> Distributions:
    log_p, p, entropy, top = (each[first : first + count] for each in of)
    return log_p, p, entropy, top


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
) -> Record:
    """Run two suffixes of the window alone, the longer first, and compare their last rows as `score_lattice`."""
    scored = []
    for start, length in dict.fromkeys(zip(starts, lengths, strict=True)):
        [read] = model.read([Reading(tokens=view(ids, start, length, bos_id), want=Want.NEXT)])
        assert read.rows is not None
        with locating_bad_logits(start + length - 1):
            scored.append(distributions(read.rows.logits(slice(0, 1))))
    # Equal suffixes are run once.
    long, short = scored[0], scored[-1]
    entropy = (long[2] + short[2]).double().cpu().numpy()
    rows = [[length - 1.0] for length in lengths]
    columns = [[1.0], [1.0], *rows, entropy, *compare(long, short).double().cpu().numpy()]
    cells = np.rec.fromarrays(columns, dtype=_CELL)
    return {"entropy": float(entropy.sum()), "rows": 2, "pairs": 1, "cells": cells}


def window_sums(found: Record, length: int) -> Record:
    """What the log keeps of a window: sums of all `cells`, by two bins of contexts, and by bin of the position."""
    cells = found["cells"]
    columns = {
        "cells": cells.times,
        "weight": cells.weight,
        "jeffreys": cells.weight * cells.jeffreys,
        "sce": cells.weight * (cells.entropy + cells.jeffreys),
    }
    contexts, positions = context_edges(length), position_edges(length)
    one, other = (_bin(rows, contexts) for rows in (cells.long_rows, cells.short_rows))
    cell, pairs = one * (one + 1) // 2 + other, len(bin_pairs(contexts))
    place, places = _bin(cells.short_rows, positions), len(positions) - 1
    curve = [name for name in columns if name != "sce"]
    return {
        **found,
        "cells": int(cells.times.sum()),
        **{name: float(cells.weight @ cells[name]) for name in ("jeffreys", "js", "agreement")},
        "matrix": {name: np.bincount(cell, column, pairs).tolist() for name, column in columns.items()},
        "position": {name: np.bincount(place, columns[name], places).tolist() for name in curve},
    }


def context_edges(length: int) -> list[int]:
    """Edges over the admissible rows. Row r has context r + 1: a bin's edge is its longest context."""
    return equal_bins(length // 2, length, _CONTEXT_BINS)


def position_edges(length: int) -> list[int]:
    """Edges over the admissible rows, for the curve by the row of the shorter context."""
    return equal_bins(length // 2, length, _POSITION_BINS)


def bin_pairs(edges: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of bins (longer context, shorter context), in the order of the sums."""
    return [(one, other) for one in range(len(edges) - 1) for other in range(one + 1)]


def _bin(rows: NDArray[np.float64], edges: Sequence[int]) -> NDArray[np.int64]:
    return np.searchsorted(np.asarray(edges[1:]), rows, side="right")


def _overlap(one: range, other: range) -> range:
    start = max(one.start, other.start)
    return range(start, max(start, min(one.stop, other.stop)))
