from __future__ import annotations

import pytest
import torch

from lengthwise.alignment import PairGeometry
from lengthwise.alignment.geometry import ChunkSchedule

BATCH, LENGTH = 3, 10


def labels(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 5, (BATCH, LENGTH), generator=generator).where(
        torch.rand(BATCH, LENGTH, generator=generator) < 0.7, -100
    )


def schedule(geometry, pairs):
    return ChunkSchedule(labels(0), labels(1), geometry=geometry, pairs=pairs)


def rows(index):
    return list(zip(*(part.tolist() for part in index), strict=True))


@pytest.mark.parametrize("pairs", [1, 2, 4, 100])
@pytest.mark.parametrize("min_context", [None, 0])
@pytest.mark.parametrize("offset", [0, 1, 4, 10])
def test_every_pair_and_every_other_label_comes_once(offset, min_context, pairs):
    geometry = PairGeometry(LENGTH, offset, min_context)
    chunks = list(schedule(geometry, pairs))
    assert len(chunks) == len(schedule(geometry, pairs))
    paired = [
        (long, short)
        for chunk in chunks
        if chunk.paired
        for long, short in zip(*map(rows, chunk.rows), strict=True)
    ]
    every_row = range(LENGTH)
    facing = list(zip(every_row[geometry.long_rows], every_row[geometry.short_rows], strict=True))
    assert paired == [((b, long), (b, short)) for b in range(BATCH) for long, short in facing]
    for side in (0, 1):
        single = [row for chunk in chunks if not chunk.paired for row in rows(chunk.rows[side])]
        inside = {pair[side] for pair in paired}
        labelled = map(tuple, (labels(side) != -100).nonzero().tolist())
        assert single == [row for row in labelled if row not in inside]


@pytest.mark.parametrize("pairs", [1, 3, 4, 100])
def test_chunks_are_even_and_no_larger_than_asked(pairs):
    plan = schedule(PairGeometry(LENGTH, 2), pairs)
    for paired in (True, False):
        sizes = [sum(len(index[0]) for index in chunk.rows) for chunk in plan if chunk.paired is paired]
        assert max(sizes) - min(sizes) <= 2
        assert max(sizes) <= min(2 * pairs, plan.most_rows)
