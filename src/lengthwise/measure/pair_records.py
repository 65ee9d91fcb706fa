"""The record of a pair of windows that two sides predicted: what is summed, and the numbers without an interval."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.measure.change_point import EXACT, Stretch, beginning, first_above, mean
from lengthwise.measure.measurement import Record
from lengthwise.measure.repeated_windows import Layout
from lengthwise.results import Row
from lengthwise.subjects.reading import Read

FLOORS = 1.5
"""The tolerance in floors: by bins, sound pairs lie up to 1.2 floors apart."""
LARGEST = 4.0
"""How much further apart one token may be than the furthest of a floor, which has fewer tokens."""
ONE_TOKEN = 20.0
"""How much further apart than the least tolerance one token is often, by rounding."""
UNLIKE = 2.0
"""How many times as far apart the windows that differ must be as all others, to say that only some differ."""
_CELLS = 128
"""At most so many cells of positions show where a difference begins."""
_LEAST_CELL = 8
_TOP = (0.01, 0.1, 1.0)
"""Shares of the tokens whose differences are summed apart, to see whether few tokens carry the whole."""
_BESIDE = 8
"""Tokens side by side of which the one with the largest difference is summed apart: few tokens may stand together."""


def pair_record(
    layout: Layout,
    labels: Sequence[NDArray[np.int64]],
    one: Sequence[Read],
    two: Sequence[Read],
    *,
    cached_from: int = 0,
) -> Record:
    """What both sides give in the two windows of a pair, summed by position and by distance.

    `labels` [2, N] follow the rows that count. `windows`, `signs` and `top` are of the rows from `cached_from` on,
    from where a cache can matter.
    """
    from lengthwise.measure.distributions import apart

    halves = [apart(*each, first=layout.first) for each in zip(one, two, labels, strict=True)]
    own, other, *more = np.stack([rows for rows, _ in halves], axis=1)
    change = other - own
    columns = {"difference": np.abs(change), "shift": change, "loss": own}
    columns |= zip(("kl", "same_top"), more, strict=False)
    edges = [edge - layout.first for edge in layout.edges[:-1]]
    sums = {name: _summed_between(edges, both).tolist() for name, both in columns.items()}
    half, row = divmod(int(np.argmax(columns["difference"])), layout.length - layout.first)
    warmed = [float((each.losses - each.cold).abs().sum()) for each in two if each.cold is not None]
    read_back = change[:, max(0, cached_from - layout.first) :]
    ordered = np.sort(np.abs(read_back), axis=None)[::-1]
    return {
        **sums,
        **({"prefix_cache": [sum(warmed)]} if warmed else {}),
        "targets": 2 * (layout.length - layout.first),
        "largest": [float(change[half][row]), half, layout.first + row],
        "bounded": halves[0][1],
        "cells": _summed_between(cell_edges(layout)[:-1], np.abs(change)).tolist(),
        "windows": np.abs(read_back).mean(axis=1).tolist(),
        "signs": [int(np.sign(read_back).sum()), int(np.count_nonzero(read_back))],
        "top": [float(ordered[: max(1, round(share * ordered.size))].sum()) for share in _TOP],
        "alone": float(
            np.maximum.reduceat(np.abs(read_back), range(0, read_back.shape[1], _BESIDE), axis=1).sum()
        ),
        "benefit": _benefits(layout, own, other),
    }


def between(a: Record, b: Record) -> Record:
    """What is known of two sides together, from what `KeptPredictions.side` says of each."""
    from lengthwise.subjects.rounding import ELSEWHERE, MOST

    # Neither side can be read again with other rounding.
    elsewhere = 0.0 if a["weights"] or b["weights"] else FLOORS * ELSEWHERE
    rows = [side["vocabulary"] for side in (a, b)]
    found: Record = {
        "least": max(a["least"], b["least"], elsewhere),
        "other_ids": int(a["bos"] != b["bos"]),
        "other_template": a["template"] != b["template"],
        "more_rows": rows[1] - rows[0] if all(rows) else 0,
    }
    for name, one, other in (("floor_a", a, b), ("floor_b", b, a)):
        # Beside other software, the weights here are rounded as in 16 bits.
        kind = "floor_16" if one["weights"] and not other["weights"] else "floor"
        if one.get(kind) is not None:
            found[name] = {**one[kind], "most": MOST["bfloat16"] if kind == "floor_16" else one["most"]}
    return found


def cell_edges(layout: Layout) -> list[int]:
    """Edges of the cells of rows, from the first that counts: finer than the bins, to see where something begins."""
    rows = layout.length - layout.first
    size = max(_LEAST_CELL, -(-rows // _CELLS))
    return [*range(0, rows, size), rows]


def _summed_between(edges: Sequence[int], both: Any) -> NDArray[np.float64]:
    """Sums over both windows, and over the rows between edges."""
    return np.add.reduceat(np.sum(both, axis=0, dtype=np.float64), edges)


def _benefits(layout: Layout, own: NDArray[np.float64], other: NDArray[np.float64]) -> list[list[float]]:
    """By distance: losses of side A after the same passage and another, of side B after both, summed; their count."""
    found = np.zeros((len(layout.distances), 5))
    for place, (_, half, scored) in enumerate(layout.passages()):
        part = slice(scored.start - layout.first, scored.stop - layout.first)
        losses = (own[half], own[1 - half], other[half], other[1 - half])
        found[place // 2] += [*(values[part].sum() for values in losses), scored.stop - scored.start]
    return [[*losses, int(count)] for *losses, count in found.tolist()]


def near(row: int) -> slice:
    """Tokens of a window, from eleven before a row up to the one that it predicts."""
    return slice(max(0, row - 11), row + 2)


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


def plain_rows(
    records: Sequence[Record], layout: Layout, tolerance: float | None, *, task: str, cached_from: int
) -> list[Row]:
    """What has no interval over documents, of one length: floors, tolerances, where it begins, which windows."""

    def plain(metric: str, value: float | None, **about: Any) -> Row:
        return Row(model="", task=task, metric=metric, value=value, length=layout.length, **about)

    whole, tolerances = tolerated(records, layout, tolerance)
    found = [
        plain("largest", max(abs(r["largest"][0]) for r in records), n=sum(r["targets"] for r in records)),
        plain("tolerance", whole),
        *(
            plain("tolerance", value, position=begin, position_end=end)
            for value, (begin, end) in zip(tolerances, itertools.pairwise(layout.edges), strict=True)
        ),
    ]
    for name in ("floor_a", "floor_b"):
        if (floor := floors(records, name, layout)) is not None:
            found.append(plain(name, floor[0]))
            most = max(record[name]["most"] for record in records if record.get(name))
            found.append(plain(name.replace("floor", "most"), most))
            by_length = [each for record in records if (each := (record.get(name) or {}).get("by_length"))]
            if by_length:
                found.append(plain(name.replace("floor", "by_length"), max(by_length)))
    largest = [r[name]["largest"] for r in records for name in ("floor_a", "floor_b") if r.get(name)]
    if largest:
        found.append(plain("largest_rounding", LARGEST * max(max(largest), ONE_TOKEN * records[0]["least"])))
    curve = [part for part in fine_curve(records, layout) if part.begin >= cached_from]
    place = None if layout.decode else beginning(curve, whole)
    if place is not None:
        low, high = map(float, place)
        found.append(plain("begins", low, unit="tokens", ci_low=low, ci_high=high))
        unequal = first_above(curve, EXACT) or 0
        faint = [part for part in curve[unequal:] if part.end <= low]
        later = [part for part in curve if part.begin >= low]
        found.append(plain("before", mean(faint) if faint else 0.0))
        found.append(plain("after", mean(later) if later else 0.0))
        if unequal:
            cell = curve[unequal]
            where = {"ci_low": float(cell.begin), "ci_high": float(cell.end)}
            found.append(plain("exact_up_to", float(cell.begin), unit="tokens", **where))
    found.append(plain("windows_apart", _windows_apart(records, whole), unit="share"))
    shares, (signs, unequal) = (np.sum([r[name] for r in records], axis=0) for name in ("top", "signs"))
    if unequal:
        for metric, part in zip(("top_share", "tenth_share"), shares[:-1], strict=True):
            found.append(plain(metric, float(part / shares[-1]), unit="share"))
        alone = sum(record["alone"] for record in records)
        found.append(plain("alone_share", float(alone / shares[-1]), unit="share"))
        found.append(plain("one_sided", float(-signs / unequal), unit="share", n=int(unequal)))
    for metric in ("other_ids", "more_rows"):
        if records[0][metric]:
            found.append(plain(metric, float(records[0][metric]), unit="tokens"))
    return found


def tolerated(
    records: Sequence[Record], layout: Layout, tolerance: float | None
) -> tuple[float, list[float]]:
    """The tolerance in all and of each bin: what the user says, or `FLOORS` floors and at least the dtype's."""
    bins = len(layout.edges) - 1
    if tolerance is not None:
        return tolerance, [tolerance] * bins
    least = max(record["least"] for record in records)
    known = [found for name in ("floor_a", "floor_b") if (found := floors(records, name, layout)) is not None]
    whole = max([least, *(FLOORS * floor for floor, _ in known)])
    by_bin = [max([whole, *(FLOORS * part[index] for _, part in known)]) for index in range(bins)]
    return whole, by_bin


def comparison_notes(records: Sequence[Record]) -> list[str]:
    """What the records of a difference say beside the numbers, however they were made."""
    if not records:
        return []
    record = max(records, key=lambda each: abs(each["largest"][0]))
    value, half, row = record["largest"]
    before, token = record["said"]
    found = [
        f"The largest difference: log p of {token!r} is {abs(value):.3g} nats "
        f"{'lower' if value > 0 else 'higher'} in B, at token {row + 1} of the {('first', 'second')[half]} "
        f"window from token {record['start']} of {record['document']!r}, after {before!r}."
    ]
    if record["other_template"]:
        found.append(
            "The chat templates differ. Both sides read the same text, so that this does not show here."
        )
    if record["bounded"]:
        found.append("kl is a lower bound, from the likeliest tokens of each side alone.")
    return found


def _windows_apart(records: Sequence[Record], tolerance: float) -> float:
    """The share of windows that differ; 1 unless they are clearly apart from those that do not."""
    means = sorted(mean for record in records for mean in record["windows"])
    apart = [mean for mean in means if mean > tolerance]
    alike = means[: len(means) - len(apart)]
    if not apart:
        return 0.0
    return len(apart) / len(means) if alike and apart[0] >= UNLIKE * alike[-1] else 1.0
