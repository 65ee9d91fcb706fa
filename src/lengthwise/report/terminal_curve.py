"""A curve in characters, for the terminal: one line for each point, with its value and interval."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lengthwise.report.tables import Estimate
from lengthwise.results import Row

WIDTH = 80
_PLOT = 40
_MOST_LINES = 12


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    width: int

    def column(self, value: float) -> int:
        return round((value - self.low) / ((self.high - self.low) or 1) * (self.width - 1))


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
    points = [(place, row) for place, row in points if row.value is not None]
    if not points:
        return []
    ends = [end for _, row in points for end in (row.value, row.ci_low, row.ci_high) if end is not None]
    texts = [row_text(row) for _, row in points]
    first = max(len(across), *(len(str(place)) for place, _ in points)) + 2
    second = max(map(len, texts))
    scale = _Scale(min(*ends, *levels), max(*ends, *levels), min(_PLOT, WIDTH - first - second - 4))
    lines = ["", f"{across:>{first}}  {what}"]
    waiting = sorted((marks or {}).items(), key=lambda mark: mark[1])
    for (place, row), text in zip(points, texts, strict=True):
        while waiting and waiting[0][1] < place:
            lines.append(_mark(waiting.pop(0)[0], first))
        lines.append(f"{place:>{first}}  {text:<{second}}  {_drawn(row, scale, levels)}".rstrip())
    return lines + [_mark(text, first) for text, _ in waiting]


def _drawn(row: Row, scale: _Scale, levels: Iterable[float]) -> str:
    signs = [" "] * scale.width
    if row.ci_low is not None and row.ci_high is not None:
        for column in range(scale.column(row.ci_low), scale.column(row.ci_high) + 1):
            signs[column] = "─"
    for level in levels:
        column = scale.column(level)
        signs[column] = "┼" if signs[column] == "─" else "│"
    assert row.value is not None
    signs[scale.column(row.value)] = "●"
    return "".join(signs)


def _mark(text: str, indent: int) -> str:
    return f"{'':>{indent}}  {f'-- {text} ':-<{WIDTH - indent - 2}}"


def joined(bins: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` wider bins; the mean over a wider bin has no interval."""
    bins = sorted((row for row in bins if row.value is not None), key=lambda row: row.position or 0)
    if len(bins) <= _MOST_LINES:
        return bins
    edges = [len(bins) * line // _MOST_LINES for line in range(_MOST_LINES + 1)]
    joined = []
    for begin, end in pairwise(edges):
        some = bins[begin:end]
        total = sum(row.n or 1 for row in some)
        mean = sum((row.value or 0) * (row.n or 1) for row in some) / total
        joined.append(
            Row(
                model=some[0].model,
                task=some[0].task,
                metric=some[0].metric,
                value=mean,
                position=some[0].position,
                position_end=some[-1].position_end,
                n=total,
            )
        )
    return joined


def thinned(rows: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` of the rows, evenly chosen, the first and the last among them."""
    if len(rows) <= _MOST_LINES:
        return list(rows)
    return [rows[round(line * (len(rows) - 1) / (_MOST_LINES - 1))] for line in range(_MOST_LINES)]


def row_text(row: Row, *, digits: int | None = None) -> str:
    """The value with its interval; with `digits`, so many decimals."""
    if digits is None or row.value is None:
        if row.ci_low is None and row.unit == "nats" and row.value is not None:
            return f"{row.value:.3f}"
        return Estimate(row.value, row.ci_low, row.ci_high, at_least=bool(row.at_least)).text
    interval = (
        "" if row.ci_low is None or row.ci_high is None else f" [{row.ci_low:,.0f}, {row.ci_high:,.0f}]"
    )
    return f"{'at least ' if row.at_least else ''}{row.value:,.{digits}f}{interval}"


def sentences(text: str) -> list[str]:
    """A paragraph as lines."""
    return textwrap.wrap(text, WIDTH)
