"""The lattice: every shared position of several views of one window, compared.

A *view* is L tokens of the window from a start in 0 .. n-1, where n = L - L//2 is the number of admissible
context lengths L//2 + 1 .. L, the current token included. Two views with starts D apart face each other in
n - D admissible rows (`PairGeometry`): each pair of admissible context lengths with this difference, once.
docs/measuring.md says why the mean over pairs of the mean over their rows has the expectation of Eq. 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from lengthwise.alignment import PairGeometry
from lengthwise.measure.rows import Distributions, NonFiniteRow, chunk_rows, compare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import FullLogits, Head


def admissible_contexts(length: int) -> int:
    """n, the number of context lengths that Eq. 2 averages over for L = `length`."""
    return PairGeometry(length, 0).paired_positions


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
        NonFiniteRow: with the position in the window.
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
        except NonFiniteRow as error:
            raise NonFiniteRow(self._position(spans, error.row)) from error
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
