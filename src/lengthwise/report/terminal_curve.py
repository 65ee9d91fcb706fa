"""A curve in characters, for the terminal: one line for each point, with its value and interval."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from lengthwise.report.row_tables import row_estimate
from lengthwise.results import Row

WIDTH = 80
_PLOT = 40
_MOST_LINES = 12


def plot(
    points: Sequence[tuple[int, Row]],
    across: str,
    what: str,
    *,
    marks: Mapping[str, float] | None = None,
    levels: Sequence[float] = (),
) -> list[str]:
    """One line for each point: its place, its value with the interval, and both drawn on one scale.

    `marks` are texts at places between points; `levels` are values that get a vertical line.
    """
    if not points:
        return []
    ends = [end for _, row in points for end in (row.value, row.ci_low, row.ci_high) if end is not None]
    low, high = min(*ends, *levels), max(*ends, *levels)
    texts = [row_text(row) for _, row in points]
    first = max(len(across), *(len(str(place)) for place, _ in points)) + 2
    second = max(map(len, texts))
    width = min(_PLOT, WIDTH - first - second - 4)

    def column(value: float) -> int:
        return round((value - low) / ((high - low) or 1) * (width - 1))

    lines = ["", f"{across:>{first}}  {what}"]
    waiting = sorted((marks or {}).items(), key=lambda mark: mark[1])
    for (place, row), text in zip(points, texts, strict=True):
        while waiting and waiting[0][1] < place:
            lines.append(_mark(waiting.pop(0)[0], first))
        drawn = _drawn(row, column, width, levels)
        lines.append(f"{place:>{first}}  {text:<{second}}  {drawn}".rstrip())
    return lines + [_mark(text, first) for text, _ in waiting]


def _drawn(row: Row, column: Callable[[float], int], width: int, levels: Sequence[float]) -> str:
    signs = [" "] * width
    if row.ci_low is not None and row.ci_high is not None:
        for place in range(column(row.ci_low), column(row.ci_high) + 1):
            signs[place] = "─"
    for level in map(column, levels):
        signs[level] = "┼" if signs[level] == "─" else "│"
    assert row.value is not None
    signs[column(row.value)] = "●"
    return "".join(signs)


def _mark(text: str, indent: int) -> str:
    return f"{'':>{indent}}  {f'-- {text} ':-<{WIDTH - indent - 2}}"


def joined(bins: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` wider bins; the mean over a wider bin has no interval."""
    bins = sorted(bins, key=lambda row: row.position or 0)
    if len(bins) <= _MOST_LINES:
        return bins
    edges = [len(bins) * line // _MOST_LINES for line in range(_MOST_LINES + 1)]
    joined = []
    for begin, end in pairwise(edges):
        some = bins[begin:end]
        total = sum(row.n or 1 for row in some)
        mean = sum((row.value or 0) * (row.n or 1) for row in some) / total
        joined.append(
            replace(
                some[0], value=mean, position_end=some[-1].position_end, n=total, ci_low=None, ci_high=None
            )
        )
    return joined


def thinned(rows: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` of the rows, evenly chosen, the first and the last among them."""
    if len(rows) <= _MOST_LINES:
        return list(rows)
    return [rows[round(line * (len(rows) - 1) / (_MOST_LINES - 1))] for line in range(_MOST_LINES)]


def row_text(row: Row) -> str:
    """The value with its interval; nats without one have three decimals."""
    if row.ci_low is None and row.unit == "nats":
        return f"{row.value:.3f}"
    return row_estimate(row).text


def sentences(text: str) -> list[str]:
    """A paragraph as lines."""
    return textwrap.wrap(text, WIDTH)
