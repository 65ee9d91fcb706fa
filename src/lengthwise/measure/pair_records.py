"""The record of a pair of windows that two sides predicted, and the totals that its numbers are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.measurement import Record
from lengthwise.measure.repeated_windows import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.measure.predictions import Predictions, RowDifferences


def pair_record(
    layout: Layout, windows: NDArray[np.int64], one: Sequence[Predictions], two: Sequence[Predictions]
) -> Record:
    """What both sides predict in the two windows [2, T + 1] of a pair, summed by position and by distance."""
    import torch

    from lengthwise.measure.predictions import Numbers, difference

    labels = torch.from_numpy(windows[:, 1:])
    rows = [difference(*sides, layout.first) for sides in zip(one, two, labels, strict=True)]
    edges = [edge - layout.first for edge in layout.edges[:-1]]
    apart = [each.other - each.own for each in rows]
    columns: dict[str, Any] = {
        "difference": np.abs(apart),
        "shift": apart,
        "loss": [each.own for each in rows],
    }
    columns |= {name: [getattr(each, name) for each in rows] for name in ("kl", "same_top")}
    sums = {
        name: np.add.reduceat(np.sum(both, axis=0, dtype=np.float64), edges).tolist()
        for name, both in columns.items()
        if both[0] is not None
    }
    half, row = divmod(int(np.argmax(columns["difference"])), layout.length - layout.first)
    warmed = [
        float(abs(each.values - each.cold).sum())
        for each in two
        if isinstance(each, Numbers) and each.cold is not None
    ]
    return {
        **sums,
        **({"prefix_cache": [sum(warmed)]} if warmed else {}),
        "targets": 2 * (layout.length - layout.first),
        "largest": [float(apart[half][row]), half, layout.first + row],
        "bounded": rows[0].bounded,
        "benefit": _benefits(layout, rows),
    }


def _benefits(layout: Layout, rows: Sequence[RowDifferences]) -> list[list[float]]:
    """By distance: losses of side A after the same passage and another, of side B after both, summed; their count."""
    found = np.zeros((len(layout.distances), 5))
    for place, (_, half, scored) in enumerate(layout.passages()):
        part = slice(scored.start - layout.first, scored.stop - layout.first)
        same, foreign = rows[half], rows[1 - half]
        losses = (same.own, foreign.own, same.other, foreign.other)
        found[place // 2] += [*(values[part].sum() for values in losses), scored.stop - scored.start]
    return [[*losses, int(count)] for *losses, count in found.tolist()]


def benefit_totals(record: Record, index: int) -> dict[str, list[float]]:
    """Of one distance: metric -> the summed benefit and what it is divided by."""
    same_a, foreign_a, same_b, foreign_b, count = record["benefit"][index]
    a, b = foreign_a - same_a, foreign_b - same_b
    return {
        "benefit_a": [a, count],
        "benefit_b": [b, count],
        "benefit_change": [b - a, count],
        "benefit_kept": [b, a],
    }


def floor_of(records: Sequence[Record]) -> float | None:
    """The mean difference of the first side from itself, over the records that have it."""
    found = [record["floor"] for record in records if "floor" in record]
    return sum(found) / len(found) if found else None


def summed(record: Record, parts: Sequence[str]) -> list[float]:
    """The sum of columns over all positions, and the tokens."""
    return [sum(sum(record[part]) for part in parts), record["targets"]]


def equal_up_to(
    totals: NDArray[np.float64], *, edges: Sequence[int], tolerance: float
) -> NDArray[np.float64]:
    """Where the first bin begins whose mean is above the tolerance, or the end: [R, bins + 1] -> [R]."""
    means = totals[:, :-1] / (totals[:, -1:] * np.diff(edges))
    above = np.concatenate([means > tolerance, np.ones((len(means), 1), dtype=bool)], axis=1)
    return np.asarray(edges, dtype=np.float64)[above.argmax(axis=1)]
