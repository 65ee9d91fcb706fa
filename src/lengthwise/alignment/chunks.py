"""In which order the fused objective works through rows: pairs first, then those with a label only."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.alignment.geometry import PairGeometry

Index = tuple[Tensor, Tensor]
"""Samples and rows, [n] each: `hidden[index]` is [n, d]."""


@dataclass(frozen=True)
class Chunk:
    """Rows whose logits are in memory together: long's, then short's; alternating if `paired`."""

    rows: tuple[Index, Index]
    paired: bool

    def join(self, long: Tensor, short: Tensor) -> Tensor:
        """Values [n, ...] of the long and [m, ...] of the short rows, in the chunk's order."""
        if self.paired:
            return torch.stack((long, short), dim=1).flatten(0, 1)
        return torch.cat((long, short))

    def take(self, views: Sequence[Tensor]) -> Tensor:
        """The chunk's rows of both views [B, L, ...], joined."""
        long, short = (view[index] for view, index in zip(views, self.rows, strict=True))
        return self.join(long, short)

    def split(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The reverse of `join`, without a copy."""
        if self.paired:
            long, short = values.unflatten(0, (-1, 2)).unbind(1)
            return long, short
        rows_of_long = len(self.rows[0][0])
        return values[:rows_of_long], values[rows_of_long:]


class ChunkSchedule:
    """The chunks of a batch. Rows with neither label nor partner have no part in the loss: they are left out.

    Args:
        labels_long, labels_short: [B, L].
        geometry: which rows are pairs.
        ignore_index: the label of a row without one.
        pairs: pairs in a chunk at most, so 2 * pairs rows.
    """

    def __init__(
        self,
        labels_long: Tensor,
        labels_short: Tensor,
        *,
        geometry: PairGeometry,
        ignore_index: int,
        pairs: int,
    ) -> None:
        self._geometry = geometry
        self._device = labels_long.device
        self._long = _unpaired(labels_long, geometry.long_rows, ignore_index)
        self._short = _unpaired(labels_short, geometry.short_rows, ignore_index)
        self._pair_bounds = _bounds(labels_long.shape[0] * geometry.paired_positions, pairs)
        self._row_bounds = _bounds(len(self._long[0]) + len(self._short[0]), 2 * pairs)

    def __len__(self) -> int:
        return len(self._pair_bounds) + len(self._row_bounds)

    @property
    def most_rows(self) -> int:
        """Rows of the largest chunk."""
        pairs = max((stop - start for start, stop in self._pair_bounds), default=0)
        return max(2 * pairs, max((stop - start for start, stop in self._row_bounds), default=0))

    def __iter__(self) -> Iterator[Chunk]:
        per_sample = self._geometry.paired_positions
        for start, stop in self._pair_bounds:
            position = torch.arange(start, stop, device=self._device)
            sample, pair = position // per_sample, position % per_sample
            long = sample, pair + self._geometry.long_rows.start
            short = sample, pair + self._geometry.short_rows.start
            yield Chunk((long, short), paired=True)
        first_short = len(self._long[0])
        for start, stop in self._row_bounds:
            long = _cut(self._long, start, stop)
            short = _cut(self._short, start - first_short, stop - first_short)
            yield Chunk((long, short), paired=False)


def _unpaired(labels: Tensor, paired_rows: slice, ignore_index: int) -> Index:
    has_label = labels != ignore_index
    has_label[:, paired_rows] = False
    sample, row = has_label.nonzero(as_tuple=True)
    return sample, row


def _bounds(total: int, most: int) -> list[tuple[int, int]]:
    """0 .. total in equal parts of at most `most`; a small last part would waste a pass over the head."""
    parts = -(-total // most)
    edges = [total * part // parts for part in range(parts + 1)] if parts else []
    return list(itertools.pairwise(edges))


def _cut(index: Index, start: int, stop: int) -> Index:
    start, stop = max(start, 0), max(stop, 0)
    return index[0][start:stop], index[1][start:stop]
