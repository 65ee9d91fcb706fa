"""Accuracy by depth as pictures, one for each task, one panel for each length."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.report.drawing import COLORS, Picture, curves_of, draw_curves, drawn, legend_below, picture
from lengthwise.results import Results, Row

MOST_ARMS = len(COLORS)
"""More arms than colours have no picture, only their table."""


def depth_pictures(results: Results) -> list[Picture]:
    """One for each task; none if the arms are too many for one picture."""
    tasks = results.config["measures"].get("eval", {}).get("tasks", ())
    return [found for task in tasks if (found := _depth_picture(results, task)) is not None]


def _depth_picture(results: Results, task: str) -> Picture | None:
    rows = [
        row
        for row in results.select(task=task, metric="accuracy", reference=None)
        if row.depth is not None and row.value is not None
    ]
    if not rows or len({row.arm for row in rows}) > MOST_ARMS:
        return None
    lengths = sorted({row.length for row in rows if row.length is not None})
    panels = {length: curves_of([row for row in rows if row.length == length], _depth) for length in lengths}
    title = f"{task}: accuracy by depth"
    with drawn(height=3.0, panels=(1, len(lengths)), legend=panels[lengths[0]], share_y=True) as (
        figure,
        grid,
    ):
        for axes, (length, curves) in zip(grid.flat, panels.items(), strict=True):
            draw_curves(axes, curves)
            depths = sorted({x for curve in curves for x in curve.x})
            axes.set_xticks(depths, [f"{depth:g} %" for depth in depths])
            axes.set(title=f"{length:,} tokens", xlabel="depth of the answer", ylim=(0, 1.02))
        grid[0][0].set_ylabel("accuracy")
        legend_below(figure, grid[0][0])
        return picture(
            figure,
            name=f"{results.kind}-{task}",
            title=title,
            alt=f"{title}. {_ends(rows, lengths)}",
            caption="0 % is the beginning of the prompt. Thin lines are seeds. Bars and bands are 95 % intervals "
            "over contexts, of arms with one seed.",
        )


def _depth(row: Row) -> float:
    assert row.depth is not None
    return row.depth


def _ends(rows: Sequence[Row], lengths: Sequence[int]) -> str:
    """Each arm's accuracy at the first depth of the longest prompts, in words; seeds one after the other."""
    first = min(map(_depth, rows))
    values: dict[str, list[str]] = {}
    for row in rows:
        if (row.length, row.depth) == (lengths[-1], first) and row.arm is not None:
            values.setdefault(row.arm, []).append(f"{row.value:.2f}")
    arms = "; ".join(f"{arm} {', '.join(own)}" for arm, own in values.items())
    return f"At {lengths[-1]:,} tokens and depth {first:g} %: {arms}."
