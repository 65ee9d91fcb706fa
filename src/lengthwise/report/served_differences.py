"""How a served model's differences are shown: by position in a figure, and in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lengthwise.measure.served_verdict import verdict
from lengthwise.report.drawing import (
    Curve,
    Picture,
    curves_of,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
)
from lengthwise.report.terminal_curve import plot, sentences
from lengthwise.results import Row

_PANELS = (
    ("difference", "How far apart? Mean |difference|"),
    ("shift", "Which is better? Served - checkpoint loss"),
)


def differences_by_position(rows: Sequence[Row], *, name: str = "served-by-position") -> Picture | None:
    """The mean absolute difference and the shift of the loss by position, a curve for each length."""
    panels = [(title, _by_length(rows, metric)) for metric, title in _PANELS]
    if not all(curves for _, curves in panels):
        return None
    title = "Served model against its checkpoint, by position"
    with drawn(height=3.4, panels=(1, 2), legend=panels[0][1]) as (figure, grid):
        for axes, (heading, curves) in zip(grid[0], panels, strict=True):
            draw_curves(axes, curves)
            doubling_axis(axes, [16 * 4**step for step in range(12) if 16 * 4**step <= curves[-1].x[-1]])
            axes.axhline(0, color="#555555", linewidth=0.9)
            axes.set_title(heading, fontsize=9)
            axes.set(xlabel="position (tokens)")
        for row in rows:
            if row.metric == "tolerance" and row.value is not None:
                grid[0][0].axhline(row.value, color="#555555", linewidth=0.9, linestyle="--")
        grid[0][0].set_ylabel("nats per token")
        legend_below(figure, grid[0][0])
        words = " ".join(
            f"{heading}: {curve.label} {curve.y[0]:.3g} at {curve.x[0]:.0f}, {curve.y[-1]:.3g} at {curve.x[-1]:.0f}."
            for heading, curves in panels
            for curve in curves
        )
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. {words}",
            caption=" ".join(verdict(rows))
            + " The same tokens, read by the server and by the checkpoint. 0 on the "
            "left is an equal model, the dashed line the tolerance; above 0 on the right the served model predicts "
            "worse. Bands or bars are 95 % intervals (bootstrap over documents).",
        )


def served_answer(rows: Sequence[Row], _: Mapping[str, Any]) -> list[str]:
    """The verdict, and the difference by position at the greatest length."""
    lines = [line for said in verdict(rows) for line in sentences(said)]
    longest = max((row.length for row in rows if row.length is not None), default=None)
    bins = [
        row
        for row in rows
        if row.metric == "difference" and row.position_end is not None and row.length == longest
    ]
    points = [(row.position_end or 0, row) for row in bins]
    # Two to a doubling; the last of each doubling, and the last of all.
    shown = points[::2] if len(points) > 12 else points
    shown += [point for point in points[-1:] if point not in shown]
    return lines + plot(shown, "up to", "mean |difference|, nats per token; line at 0", levels=[0.0])


def _by_length(rows: Sequence[Row], metric: str) -> list[Curve]:
    found = []
    lengths = sorted({row.length for row in rows if row.length is not None})
    for style, length in enumerate(lengths):
        some = [
            row for row in rows if row.metric == metric and row.length == length and row.position is not None
        ]
        several = len({row.model for row in rows}) > 1
        for curve in curves_of(some, lambda row: ((row.position or 0) + (row.position_end or 0)) / 2):
            label = f"{curve.label}, {length} tokens" if several else f"{length} tokens"
            found.append(replace(curve, label=label, style=style))
    return found
