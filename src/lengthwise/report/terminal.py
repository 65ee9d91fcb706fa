"""The answer of a run in the terminal: its sentence, what explains it, and curves in characters."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.report.sentence import curve_of, said, score_rows
from lengthwise.report.tables import row_text, tasks_in_order
from lengthwise.results import Results, Row

WIDTH = 80
_PLOT = 40
_MOST_LINES = 12


def answer(results: Results) -> list[str]:
    """The sentence of a run, what explains it and its curves, as lines of at most 80 columns; empty without one."""
    found = said(results)
    if not found.numbers:
        return []
    lines = textwrap.wrap(found.sentence, WIDTH)
    for text in found.more:
        lines += ["", *textwrap.wrap(text, WIDTH)]
    return lines + pictures(results)


def pictures(results: Results) -> list[str]:
    """The curves in characters, each after an empty line."""
    lines: list[str] = []
    for task in tasks_in_order(row.task for row in results.rows):
        rows = [row for row in results.rows if row.task == task and row.reference is None]
        lines += PICTURES.get(task, _depths)([row for row in rows if row.value is not None], results)
    return lines


def _limit_curves(rows: Sequence[Row], results: Results) -> list[str]:
    # Other verbs need no module of `limit`.
    from lengthwise.report.limit_answer import reaches

    numbers = {row.metric: row for row in rows if row.position is None and row.distance is None}
    if "tolerance" not in numbers:
        return []
    tolerance = numbers["tolerance"]
    marks = {
        metric: {f"{metric.replace('_', ' ')} {reach.text} tokens": _number(reach.row)}
        for metric, reach in reaches(results).items()
        if reach.row is not None and reach.row.value
    }
    excess = _joined([row for row in rows if row.metric == "excess"])
    # What decided is marked.
    curve = "benefit_inside" if "beginning_up_to" in numbers else "benefit"
    return [
        *_plot(
            [(row.position_end or 0, row) for row in excess],
            "context",
            f"excess loss, nats per token; lines at 0 and at the tolerance, {tolerance.value:g}",
            marks=marks.get("sound_up_to"),
            levels=[0.0, _number(tolerance)],
        ),
        *(
            line
            for metric, which in (("benefit", "repeated passage"), ("benefit_inside", "passage from inside"))
            if metric in ("benefit", curve)
            for line in _plot_by(
                "distance",
                curve_of(rows, metric),
                f"benefit of a {which}, nats per token; line at 0",
                marks=marks.get("used_up_to", {}) if metric == curve else {},
                levels=[0.0],
            )
        ),
    ]


def _depths(rows: Sequence[Row], _: Results) -> list[str]:
    """The scores of a family by depth and length, in per cent."""
    cells = {
        (row.depth, row.length): row
        for row in score_rows(rows)
        if row.depth is not None and row.length is not None and row.unit == "share"
    }
    depths, lengths = sorted({depth for depth, _ in cells}), sorted({length for _, length in cells})[-9:]
    if len(depths) < 2:
        return []
    lines = [
        f"  {rows[0].task}: per cent, by the depth of the answer",
        "  depth" + "".join(f"{length:>8,}" for length in lengths) + "  tokens",
    ]
    for depth in depths:
        own = (cells.get((depth, length)) for length in lengths)
        shares = ("" if row is None else f"{100 * _number(row):.0f}" for row in own)
        lines.append(f"{depth:5g} %" + "".join(f"{share:>8}" for share in shares))
    return ["", *lines]


def _difference_curves(rows: Sequence[Row], _: Results) -> list[str]:
    from lengthwise.report.comparison_curve import benefits_by_distance, difference_bins

    points = [(row.position_end or 0, row) for row in difference_bins(rows)]
    # Two to a doubling; the last of each doubling, and the last of all.
    shown = points[::2] if len(points) > 12 else points
    shown += [point for point in points[-1:] if point not in shown]
    lines = _plot(shown, "up to", "mean |difference|, nats per token; line at 0", levels=[0.0])
    # A small table of the benefits of both sides by distance.
    cells = {(row.metric, row.distance or 0): row for row in benefits_by_distance(rows)}
    distances = sorted(distance for metric, distance in cells if metric == "benefit_a")[-5:]
    if distances:
        lines += [
            "",
            "  benefit of a passage" + "".join(f"{each:>9,}" for each in distances) + "  tokens back",
        ]
        for side in "ab":
            worths = (_number(cells[f"benefit_{side}", distance]) for distance in distances)
            lines.append(f"  {side.upper()}, nats per token   " + "".join(f"{each:>9.2f}" for each in worths))
    return lines


PICTURES: Mapping[str, Callable[[Sequence[Row], Results], list[str]]] = {
    "misalignment": lambda rows, _: _plot_by(
        "length", curve_of(rows, "jeffreys"), "Jeffreys, nats per token", levels=[0.0]
    ),
    "perplexity": lambda rows, _: _plot_by(
        "length", curve_of(rows, "loss"), "loss, nats per token; lower is better"
    ),
    "limit": _limit_curves,
    "longppl": lambda rows, _: [],
    "difference": _difference_curves,
    "training": lambda rows, _: [],
}
"""Task -> its curves in characters, of rows that have values. Other tasks are families of questions."""


def _plot_by(field: str, rows: Sequence[Row], what: str, **marked: Any) -> list[str]:
    """`_plot` of at most `_MOST_LINES` of the rows, evenly chosen, the first and the last among them."""
    if len(rows) > _MOST_LINES:
        rows = [rows[round(line * (len(rows) - 1) / (_MOST_LINES - 1))] for line in range(_MOST_LINES)]
    return _plot([(getattr(row, field), row) for row in rows], field, what, **marked) if len(rows) > 1 else []


def _plot(
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

    # A mark at the place of a point comes after it.
    lines = [
        (mark, 1, f"{'':>{first}}  {f'-- {text} ':-<{WIDTH - first - 2}}")
        for text, mark in (marks or {}).items()
    ]
    for (place, row), text in zip(points, texts, strict=True):
        signs = [" "] * width
        if row.ci_low is not None and row.ci_high is not None:
            for at in range(column(row.ci_low), column(row.ci_high) + 1):
                signs[at] = "─"
        for level in map(column, levels):
            signs[level] = "┼" if signs[level] == "─" else "│"
        signs[column(_number(row))] = "●"
        lines.append((place, 0, f"{place:>{first}}  {text:<{second}}  {''.join(signs)}".rstrip()))
    return ["", f"{across:>{first}}  {what}", *(line for *_, line in sorted(lines))]


def _joined(bins: Sequence[Row]) -> list[Row]:
    """At most `_MOST_LINES` wider bins; the mean over a wider bin has no interval."""
    bins = sorted(bins, key=lambda row: row.position or 0)
    if len(bins) <= _MOST_LINES:
        return bins
    wider = []
    for line in range(_MOST_LINES):
        some = bins[len(bins) * line // _MOST_LINES : len(bins) * (line + 1) // _MOST_LINES]
        total = sum(row.n or 1 for row in some)
        mean = sum(_number(row) * (row.n or 1) for row in some) / total
        end = some[-1].position_end
        wider.append(replace(some[0], value=mean, position_end=end, n=total, ci_low=None, ci_high=None))
    return wider


def _number(row: Row) -> float:
    return row.value or 0.0
