"""The two limits from the sums of the samples: where a curve crosses a level for good, rows and notes.

A limit is the length that minimises the cumulative sum of (excess - tolerance), or of (level - benefit). It is
where the isotonic (rising or falling) fit of the curve crosses the level, so a single bad bin before it does not
count and no smoothing width needs choosing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.statistics import Statistic, equal_bins
from lengthwise.results import Row

if TYPE_CHECKING:
    from numpy.typing import NDArray

BINS_PER_REFERENCE = 8
_STEPS_PER_DOUBLING = 4
_SHOWN_BINS = 32


@dataclass(frozen=True, kw_only=True)
class LimitGrid:
    """Where the two curves of `limit` are measured: bins of rows, distances of the repeated passage, in tokens."""

    length: int
    """The longest context."""
    reference: int
    """R, the short context that it is compared with."""
    passage: int
    scored: int
    table: int | None = None
    """Positions in the model's table, if it has one."""

    @property
    def bin(self) -> int:
        """Rows in one bin of the excess; the limit is found to about one bin."""
        return self.reference // BINS_PER_REFERENCE

    @property
    def distances(self) -> tuple[int, ...]:
        """Distances of the repeated passage: four to a doubling from two passages on, and the longest."""
        first, last = 2 * self.passage, self.length - self.passage
        steps = int(_STEPS_PER_DOUBLING * np.log2(last / first))
        grid = {round(first * 2 ** (step / _STEPS_PER_DOUBLING)) for step in range(steps + 1)}
        return (*sorted(distance for distance in grid if distance < 0.95 * last), last)

    @property
    def near(self) -> int:
        """How many distances count as nearby: within the reference, and at least one."""
        return max(1, sum(distance <= self.reference for distance in self.distances))

    @property
    def ends_with_table(self) -> bool:
        """Whether no longer context exists for this model (to half the reference)."""
        return self.table is not None and self.length > self.table - self.reference // 2


def rises_above(curves: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of steps of each curve before it rises above its level for good.

    argmin over k of sum over i < k of (curve_i - level); the largest such k. Curves [R, B], level [R] -> [R],
    0 .. B.
    """
    paid = np.cumsum(curves - level[:, None], axis=1)
    paid = np.concatenate([np.zeros((len(curves), 1)), paid], axis=1)
    return paid.shape[1] - 1 - paid[:, ::-1].argmin(axis=1)


def sound_up_to(
    totals: NDArray[np.float64], *, start: int, width: int, tolerance: float
) -> NDArray[np.float64]:
    """Tokens of context up to which the mean excess loss stays within `tolerance`: [R].

    Args:
        totals: [R, B + 1]: the summed excess of each bin of `width` rows, then how many windows these are.
        start: tokens of context before the first bin.
        width: rows in a bin.
        tolerance: nats a token.
    """
    excess = totals[:, :-1] / (totals[:, -1:] * width)
    return start + width * rises_above(excess, np.full(len(totals), tolerance)).astype(np.float64)


def used_up_to(
    totals: NDArray[np.float64], *, distances: Sequence[int], near: int, share: float
) -> NDArray[np.float64]:
    """Tokens of distance up to which the benefit stays above `share` of what it is nearby: [R].

    The middle (geometric) of the last distance within and the first beyond; the greatest distance if all
    are within, 0 if none is. NaN where nearby there is no benefit.

    Args:
        totals: [R, 2 K + 1]: losses after the same passage at each distance, after a different one, targets.
        distances: the K distances, ascending.
        near: how many of them count as nearby.
        share: of the mean benefit nearby.
    """
    benefit = benefits(totals)
    nearby = benefit[:, :near].mean(axis=1)
    steps = rises_above(-benefit, -share * nearby)
    grid = np.asarray(distances, dtype=np.float64)
    places = np.concatenate([[0.0], np.sqrt(grid[:-1] * grid[1:]), grid[-1:]])
    return np.where(nearby > 0, places[steps], np.nan)


def benefits(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Benefit a token at each distance, from the totals of `used_up_to`: [R, K]."""
    count = (totals.shape[1] - 1) // 2
    return (totals[:, count : 2 * count] - totals[:, :count]) / totals[:, -1:]


def limit_statistics(
    records: Sequence[Mapping[str, Any]], grid: LimitGrid, *, tolerance: float, share: float
) -> list[Statistic]:
    """The two limits, then the curves that they are made of."""
    compared = grid.length - grid.reference
    blank = Row(model="", task="limit", metric="", value=None, length=grid.length)
    by_bin = [(r["document"], [*r["excess"], 1]) for r in records]
    targets = grid.scored
    by_distance = [(r["document"], [*r["same"], *r["different"], targets]) for r in records]
    sound = partial(sound_up_to, start=grid.reference, width=grid.bin, tolerance=tolerance)
    used = partial(used_up_to, distances=grid.distances, near=grid.near, share=share)
    in_tokens = replace(blank, unit="tokens")
    repeated = len(records) * targets * len(grid.distances)
    found = [
        Statistic.of(
            replace(in_tokens, metric="sound_up_to", n=len(records) * compared), by_bin, estimator=sound
        ),
        Statistic.of(replace(in_tokens, metric="used_up_to", n=repeated), by_distance, estimator=used),
        Statistic.of(
            replace(blank, metric="tolerance"),
            [(r["document"], [tolerance, 1]) for r in records],
        ),
        Statistic.of(
            replace(blank, metric="used_level", n=len(records) * targets * grid.near),
            by_distance,
            estimator=partial(_used_level, near=grid.near, share=share),
        ),
    ]
    edges = equal_bins(0, compared // grid.bin, _SHOWN_BINS)
    for metric in (name for name in ("excess", "jeffreys", "loss") if name in records[0]):
        for begin, end in pairwise(edges):
            rows = grid.bin * (end - begin)
            row = replace(
                blank,
                metric=metric,
                position=grid.reference + grid.bin * begin,
                position_end=grid.reference + grid.bin * end,
                n=len(records) * rows,
            )
            sums = [(r["document"], [sum(r[metric][begin:end]), rows]) for r in records]
            found.append(Statistic.of(row, sums))
    for index, distance in enumerate(grid.distances):
        row = replace(blank, metric="benefit", distance=distance, n=len(records) * targets)
        sums = [(r["document"], [r["different"][index] - r["same"][index], targets]) for r in records]
        found.append(Statistic.of(row, sums))
    return found


def on_the_grid(rows: Sequence[Row], grid: LimitGrid) -> list[Row]:
    """The rows with intervals as wide as the grid makes them, and `at_least` where measuring ended.

    Those of `used_up_to` end at measured distances, those of `sound_up_to` are a bin wider at each end. `used_up_to`
    has no value where the benefit nearby is not clearly above 0.
    """
    level = next((row for row in rows if row.metric == "used_level"), None)
    unclear = level is not None and level.ci_low is not None and level.ci_low <= 0
    found = []
    for row in rows:
        if row.metric == "sound_up_to":
            row = _sound(row, grid)
        elif row.metric == "used_up_to":
            blank = {"value": None, "stderr": None, "ci_low": None, "ci_high": None}
            row = replace(row, **blank) if unclear else _used(row, grid)
        elif row.metric == "tolerance":
            row = replace(row, stderr=None, ci_low=None, ci_high=None)
        found.append(row)
    return found


def _sound(row: Row, grid: LimitGrid) -> Row:
    if row.value is None:
        return row
    # Between two bins the true place lies within one bin of the edge.
    low = None if row.ci_low is None else max(row.ci_low - grid.bin, grid.reference)
    high = None if row.ci_high is None else min(row.ci_high + grid.bin, grid.length)
    open_end = row.value >= grid.length and not grid.ends_with_table
    return replace(row, ci_low=low, ci_high=high, at_least=True if open_end else None)


def _used(row: Row, grid: LimitGrid) -> Row:
    if row.value is None:
        return row
    places = (0, *grid.distances)
    low = None if row.ci_low is None else max(d for d in places if d <= row.ci_low)
    high = None if row.ci_high is None else min(d for d in places if d >= row.ci_high)
    return replace(row, ci_low=low, ci_high=high, at_least=True if row.value >= places[-1] else None)


def limit_notes(rows: Sequence[Row], grid: LimitGrid, *, tolerance: float, share: float) -> list[str]:
    """What the two numbers mean, and where they are open or undefined."""
    by_metric = {row.metric: row for row in rows if row.position is None and row.distance is None}
    notes: list[str] = []
    if not by_metric:
        return notes
    sound, used = (by_metric[name] for name in ("sound_up_to", "used_up_to"))
    notes.append(
        f"Sound: up to there the loss with all context is at most {tolerance:g} nats above the loss with "
        f"the last {grid.reference // 2 + 1} to {grid.reference} tokens of it."
    )
    notes.append(
        f"Used: up to there the benefit of a repeated passage is at least {share:.0%} of that at "
        f"distances up to {max(grid.reference, grid.distances[0])} tokens."
    )
    if sound.value == grid.reference:
        notes.append(
            f"Not sound beyond the reference of {grid.reference} tokens: the limit may lie below it; "
            "measure again with a smaller --reference."
        )
    if grid.ends_with_table and sound.value is not None and sound.value >= grid.length:
        notes.append(
            f"Sound to the end: the model's table of {grid.table} positions, beyond which it cannot read."
        )
    for row, what in ((sound, grid.length), (used, grid.distances[-1])):
        if row.at_least:
            notes.append(f"{row.metric}: no end was found up to {what} tokens; the number is a lower bound.")
        elif row.ci_high is not None and row.ci_high >= what and not grid.ends_with_table:
            notes.append(
                f"{row.metric}: the upper end of the interval is {what}, where measuring ended; it is open."
            )
    if used.value is None:
        notes.append(
            "used_up_to is not defined: even nearby the benefit of a repeated passage is not clearly above 0."
        )
    return notes


def _used_level(totals: NDArray[np.float64], *, near: int, share: float) -> NDArray[np.float64]:
    return share * benefits(totals)[:, :near].mean(axis=1)
