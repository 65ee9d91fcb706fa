"""The record of a pair of windows that two sides predicted, and the totals that its numbers are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.change_point import Stretch
from lengthwise.measure.measurement import Record
from lengthwise.measure.repeated_windows import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.measure.predictions import Predictions, RowDifferences

_CELLS = 128
"""At most so many cells of positions show where a difference begins."""
_LEAST_CELL = 8
_TOP = 0.01
"""The share of the tokens whose differences are summed apart, to see whether few tokens carry the whole."""


def pair_record(
    layout: Layout,
    windows: NDArray[np.int64],
    one: Sequence[Predictions],
    two: Sequence[Predictions],
    *,
    cached_from: int = 0,
) -> Record:
    """What both sides predict in the two windows [2, T + 1] of a pair, summed by position and by distance.

    `windows`, `signs` and `top` are of the rows from `cached_from` on, from where a cache can matter.
    """
    import torch

    from lengthwise.measure.predictions import Numbers, difference

    labels = torch.from_numpy(windows[:, 1:])
    rows = [difference(*sides, layout.first) for sides in zip(one, two, labels, strict=True)]
    apart = np.stack([each.other - each.own for each in rows])
    columns: dict[str, Any] = {
        "difference": np.abs(apart),
        "shift": apart,
        "loss": [each.own for each in rows],
    }
    columns |= {name: [getattr(each, name) for each in rows] for name in ("kl", "same_top")}
    edges = [edge - layout.first for edge in layout.edges[:-1]]
    sums = {
        name: _summed_between(edges, both).tolist() for name, both in columns.items() if both[0] is not None
    }
    half, row = divmod(int(np.argmax(columns["difference"])), layout.length - layout.first)
    warmed = [
        float(abs(each.values - each.cold).sum())
        for each in two
        if isinstance(each, Numbers) and each.cold is not None
    ]
    read_back = apart[:, max(0, cached_from - layout.first) :]
    ordered = np.sort(np.abs(read_back), axis=None)[::-1]
    return {
        **sums,
        **({"prefix_cache": [sum(warmed)]} if warmed else {}),
        "targets": 2 * (layout.length - layout.first),
        "largest": [float(apart[half][row]), half, layout.first + row],
        "bounded": rows[0].bounded,
        "cells": _summed_between(cell_edges(layout)[:-1], np.abs(apart)).tolist(),
        "windows": np.abs(read_back).mean(axis=1).tolist(),
        "signs": [int(np.sign(read_back).sum()), int(np.count_nonzero(read_back))],
        "top": [float(ordered[: max(1, round(_TOP * ordered.size))].sum()), float(ordered.sum())],
        "benefit": _benefits(layout, rows),
    }


def cell_edges(layout: Layout) -> list[int]:
    """Edges of the cells of rows, from the first that counts: finer than the bins, to see where something begins."""
    rows = layout.length - layout.first
    size = max(_LEAST_CELL, -(-rows // _CELLS))
    return [*range(0, rows, size), rows]


def _summed_between(edges: Sequence[int], both: Any) -> NDArray[np.float64]:
    """Sums over both windows, and over the rows between edges."""
    return np.add.reduceat(np.sum(both, axis=0, dtype=np.float64), edges)


def _benefits(layout: Layout, rows: Sequence[RowDifferences]) -> list[list[float]]:
    """By distance: losses of side A after the same passage and another, of side B after both, summed; their count."""
    found = np.zeros((len(layout.distances), 5))
    for place, (_, half, scored) in enumerate(layout.passages()):
        part = slice(scored.start - layout.first, scored.stop - layout.first)
        same, foreign = rows[half], rows[1 - half]
        losses = (same.own, foreign.own, same.other, foreign.other)
        found[place // 2] += [*(values[part].sum() for values in losses), scored.stop - scored.start]
    return [[*losses, int(count)] for *losses, count in found.tolist()]


def spoken(tokenizer: Any, window: NDArray[np.int64], row: int) -> list[str]:
    """The text before the token that a row predicts, and the token, from eleven tokens back."""
    pieces = pieces_of(tokenizer, window[max(0, row - 11) : row + 2])
    return ["".join(pieces[:-1]), pieces[-1]]


def pieces_of(tokenizer: Any, ids: NDArray[np.int64]) -> list[str]:
    """The text of each token. A token is decoded after its neighbour, because some tokenizers drop a first space."""
    alone = [tokenizer.decode([int(each)]) for each in ids]
    pairs = zip(ids, ids[1:], alone, strict=False)
    return alone[:1] + [tokenizer.decode([int(one), int(two)])[len(first) :] for one, two, first in pairs]


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


def fine_curve(records: Sequence[Record], layout: Layout) -> list[Stretch]:
    """The mean difference by cell, over records of one length."""
    edges = cell_edges(layout)
    sums = np.sum([record["cells"] for record in records], axis=0)
    counts = 2 * len(records) * np.diff(edges)
    return [
        Stretch(layout.first + begin, layout.first + end, float(total / n), int(n))
        for begin, end, total, n in zip(edges, edges[1:], sums, counts, strict=False)
    ]


def floors(records: Sequence[Record], name: str, layout: Layout) -> tuple[float, list[float]] | None:
    """How far a side differs from itself, over the records that say it: in all, and by bin.

    A bin that was not read again has that of all.
    """
    found: list[Mapping[str, Any]] = [record[name] for record in records if record.get(name) is not None]
    if not found:
        return None
    bins = len(layout.edges) - 1
    sums, tokens = np.zeros(bins), np.zeros(bins)
    for one in found:
        sums[: len(one["sums"])] += one["sums"]
        tokens[: len(one["tokens"])] += one["tokens"]
    whole = float(sums.sum() / tokens.sum())
    return whole, [float(total / n) if n else whole for total, n in zip(sums, tokens, strict=True)]


def summed(record: Record, parts: Sequence[str]) -> list[float]:
    """The sum of columns over all positions, and the tokens."""
    return [sum(sum(record[part]) for part in parts), record["targets"]]


def equal_up_to(
    totals: NDArray[np.float64], *, edges: Sequence[int], tolerances: Sequence[float]
) -> NDArray[np.float64]:
    """Where the first bin begins whose mean is above its tolerance, or the end: [R, bins + 1] -> [R]."""
    means = totals[:, :-1] / (totals[:, -1:] * np.diff(edges))
    above = np.concatenate([means > np.asarray(tolerances), np.ones((len(means), 1), dtype=bool)], axis=1)
    return np.asarray(edges, dtype=np.float64)[above.argmax(axis=1)]
