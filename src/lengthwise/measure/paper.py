"""The estimator as Eq. 2 is written: two suffixes of one text, their last predictions compared.

Text position and lengths are drawn as in the lattice with two views, of whose shared positions one is then
drawn uniformly. So both estimators have the same law of (position, l1, l2), hence the same expectation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.alignment import PairGeometry
from lengthwise.measure.lattice import Cells, Lattice, draw_starts
from lengthwise.measure.rows import Distributions, NonFiniteRow, compare
from lengthwise.text import view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel


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
    model: LoadedModel, ids: NDArray[np.integer], suffixes: Suffixes, bos_id: int | None
) -> Lattice:
    """Run just the two suffixes of the window `ids` and compare their last rows.

    Raises:
        NonFiniteRow: with the position in the window.
    """
    scored = []
    for start, length in zip(suffixes.starts, suffixes.lengths, strict=True):
        tokens = torch.from_numpy(view(ids, start, length, bos_id))[None]
        try:
            scored.append(Distributions.of(model.head.logits(model.hidden_states(tokens)[0, -1:])))
        except NonFiniteRow as error:
            raise NonFiniteRow(start + length - 1) from error
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
