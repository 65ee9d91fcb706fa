"""The figure of the effective context length: excess loss, disagreement, benefit, and the limits that they give."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from lengthwise.report.drawing import (
    COLORS,
    Curve,
    Panel,
    Picture,
    curve_picture,
    curves_of,
    doubling_axis,
    token_axis,
)
from lengthwise.report.row_tables import row_estimate, series_names
from lengthwise.results import Row


def limit_curves(rows: Sequence[Row], *, name: str = "limit") -> Picture | None:
    """Excess loss and disagreement by context, benefit by distance; vertical lines are the two limits."""
    rows = [row for row in rows if row.task == "limit" and row.reference is None]
    names = series_names(rows)
    curves: dict[str, list[Curve]] = {}
    for metric in ("excess", "jeffreys", "benefit"):
        points = [row for row in rows if row.metric == metric and _is_point(row)]
        curves[metric] = curves_of(points, _place, series=names)
    if not (curves["excess"] and curves["benefit"]):
        return None
    sound, used, tolerance, level = (
        _numbers(rows, metric) for metric in ("sound_up_to", "used_up_to", "tolerance", "used_level")
    )
    by_context, by_distance = partial(token_axis, ticks=4), partial(doubling_axis, apart=4)
    excess = "Sound? Loss with all minus\nloss with recent context"
    apart = "Disagreement of the two\npredictions"
    benefit = "Used? Benefit of a\nrepeated passage"
    # An endpoint gives no distributions to disagree.
    panels = [
        (
            "excess",
            "context (tokens)",
            excess,
            by_context,
            partial(draw_limits, limits=sound, levels=tolerance),
        ),
        ("jeffreys", "context (tokens)", apart, by_context, partial(draw_limits, limits=sound, levels=[])),
        (
            "benefit",
            "distance (tokens)",
            benefit,
            by_distance,
            partial(draw_limits, limits=used, levels=level),
        ),
    ]
    return curve_picture(
        [
            Panel(curves=curves[metric], across=across, heading=heading, axis=axis, levels=[0], more=more)
            for metric, across, heading, axis, more in panels
        ],
        name=name,
        title="Effective context length",
        up="nats per token",
        caption="Vertical lines are the limits, the shade around them their 95 % intervals (bootstrap over "
        "documents); a dotted line is a lower bound, where the measurement ended without finding the limit. "
        "Horizontal dashed lines are the levels that define the limits: the tolerated excess, and the share of "
        "the benefit nearby.",
        words=" ".join(
            f"{label}: {what} {row_estimate(row).text} tokens."
            for what, numbers in (("sound up to", sound), ("used up to", used))
            for _, label, row in numbers
        ),
        share_y=False,
    )


def _is_point(row: Row) -> bool:
    return row.position is not None or row.distance is not None


def _place(row: Row) -> float:
    return row.distance if row.distance is not None else ((row.position or 0) + (row.position_end or 0)) / 2


def _numbers(rows: Sequence[Row], metric: str) -> list[tuple[str, str, Row]]:
    """The color, name and row of each model that has this number. Colors are those of its curves."""
    names = series_names(rows)
    styles = list(dict.fromkeys(names))
    return [
        (COLORS[styles.index(name) % len(COLORS)], name, row)
        for name, row in zip(names, rows, strict=True)
        if row.metric == metric and not _is_point(row) and row.value is not None
    ]


def draw_limits(
    axes: Axes, limits: Sequence[tuple[str, str, Row]], levels: Sequence[tuple[str, str, Row]]
) -> None:
    """Vertical lines at the limits with their intervals, dashed horizontal ones at the levels."""
    for color, _, row in limits:
        axes.axvline(row.value or 0, color=color, linewidth=1.1, linestyle=":" if row.at_least else "-")
        if row.ci_low is not None and row.ci_high is not None and row.ci_high > row.ci_low:
            left = max(row.ci_low, axes.get_xlim()[0])
            axes.axvspan(left, row.ci_high, color=color, alpha=0.08, linewidth=0)
    for color, _, row in levels:
        axes.axhline(row.value or 0, color=color, linewidth=0.9, linestyle="--")
