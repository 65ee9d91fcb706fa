import pytest
import torch

from lengthwise.alignment import PairGeometry, next_token_labels
from lengthwise.alignment.chunked import chunks_of
from lengthwise.errors import UsageError

LENGTHS = (1, 2, 7, 8)


def every_geometry():
    for length in LENGTHS:
        for offset in range(length + 1):
            for min_context in (None, *range(length + 1)):
                yield PairGeometry(length, offset, min_context)


def test_paired_rows_hold_the_same_token_at_every_offset():
    for geometry in every_geometry():
        stretch = torch.arange(geometry.stretch_length)
        long, short = stretch[geometry.long_tokens], stretch[geometry.short_tokens]
        assert len(long) == len(short) == geometry.length
        faced = long[geometry.long_rows], short[geometry.short_rows]
        assert torch.equal(*faced), geometry
        assert len(faced[0]) == geometry.paired_positions


def test_paired_rows_are_those_that_face_each_other():
    for geometry in every_geometry():
        rows = range(geometry.length)
        faced = [
            (r, r + geometry.offset)
            for r in rows
            if r >= geometry.min_context and r + geometry.offset in rows
        ]
        assert list(zip(rows[geometry.short_rows], rows[geometry.long_rows], strict=True)) == faced, geometry


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((0, 0), "length is 0"),
        ((-4, 0), "length is -4"),
        ((8, -1), "offset is -1"),
        ((8, 9), "offset is 9"),
        ((8, 2, -1), "min_context is -1"),
        ((8, 2, 9), "min_context is 9"),
        ((8.0, 2), "length is 8.0"),
        ((8, True), "offset is True"),
        ((8, 2, 4.0), "min_context is 4.0"),
    ],
)
def test_values_out_of_range_are_named(arguments, named):
    with pytest.raises(UsageError, match=named):
        PairGeometry(*arguments)


def test_next_token_labels_shift_by_one_and_leave_the_last_row_without_a_target():
    tokens = torch.tensor([[5, 6, 7], [8, -100, 9]])
    assert next_token_labels(tokens).tolist() == [[6, 7, -100], [-100, 9, -100]]


BATCH, LENGTH = 3, 10


def labels(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 5, (BATCH, LENGTH), generator=generator).where(
        torch.rand(BATCH, LENGTH, generator=generator) < 0.7, -100
    )


def schedule(geometry, pairs):
    return chunks_of(labels(0), labels(1), geometry=geometry, pairs=pairs)


@pytest.mark.parametrize("pairs", [1, 3, 4, 100])
def test_chunks_are_even_and_no_larger_than_asked(pairs):
    plan = schedule(PairGeometry(LENGTH, 2), pairs)
    for paired in (True, False):
        sizes = [len(chunk) for chunk in plan if chunk.paired is paired]
        assert sizes == [
            sum(len(index[0]) for index in chunk.rows) for chunk in plan if chunk.paired is paired
        ]
        assert max(sizes) - min(sizes) <= 2
        assert max(sizes) <= 2 * pairs


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.uint8])
def test_labels_that_cannot_hold_the_mark_of_none_are_refused(dtype):
    """-100 of uint8 is the token 156."""
    with pytest.raises(UsageError, match=str(dtype)):
        next_token_labels(torch.zeros(2, 4, dtype=dtype))
