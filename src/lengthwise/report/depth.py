"""The heat map of an evaluation: score by the length of the prompt and the depth of the answer."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, drawn, picture
from lengthwise.report.series import series_names
from lengthwise.results import Row

_MOST_SERIES = 6
_FIRST = ("accuracy", "contained")
"""Metrics to draw, in order of preference; another is drawn if a task has none of these."""

Cells = dict[tuple[int, float], float]


def score_by_depth(rows: Sequence[Row]) -> Picture | None:
    """One panel for each model: length across, depth down, a share in each cell.

    Takes the rows of one task that have a length and a depth. Seeds are averaged. None where there are none.
    """
    ours = [r for r in rows if r.depth is not None and r.length is not None and r.reference is None]
    if not ours:
        return None
    metrics = dict.fromkeys(row.metric for row in ours)
    metric = next((name for name in _FIRST if name in metrics), next(iter(metrics)))
    task = ours[0].task
    panels = _panels([row for row in ours if row.task == task and row.metric == metric])
    if not panels:
        return None
    chance = next((r.value for r in rows if r.task == task and r.metric == "chance" and r.value), None)
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    title = f"{task}: {metric} by length and depth"
    depths = max(len({depth for _, depth in cells}) for cells in panels.values())
    with drawn(height=0.9 + lines * (1.3 + 0.32 * depths), panels=(lines, columns)) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (label, cells) in zip(grid.flat, panels.items(), strict=False):
            _draw(axes, "\n".join(textwrap.wrap(label, 80 // columns)), cells)
        by_chance = f" By chance it would be {100 * chance:.0f}." if chance else ""
        return picture(
            figure,
            name=f"depth-{task}",
            title=title,
            alt=f"{title}, in per cent. " + " ".join(f"{label}: {_words(c)}." for label, c in panels.items()),
            caption=f"Per cent of the samples. The depth is where the answer stands: 0 is the context's beginning, "
            f"100 its end, next to the question.{by_chance}",
        )


def _panels(rows: Sequence[Row]) -> dict[str, Cells]:
    found: dict[str, dict[tuple[int, float], list[float]]] = {}
    for row, label in zip(rows, series_names(rows), strict=True):
        if row.value is not None and row.length is not None and row.depth is not None:
            found.setdefault(label, {}).setdefault((row.length, row.depth), []).append(row.value)
    return {
        label: {place: fmean(values) for place, values in cells.items()}
        for label, cells in list(found.items())[:_MOST_SERIES]
    }


def _draw(axes: Axes, heading: str, cells: Cells) -> None:
    lengths = sorted({length for length, _ in cells})
    depths = sorted({depth for _, depth in cells})
    square = np.full((len(depths), len(lengths)), np.nan)
    for (length, depth), value in cells.items():
        square[depths.index(depth), lengths.index(length)] = value
    # Not imshow, which would put a bitmap into the drawing.
    axes.pcolormesh(
        np.arange(len(lengths) + 1) - 0.5,
        np.arange(len(depths) + 1) - 0.5,
        square,
        cmap="cividis",
        vmin=0,
        vmax=1,
        edgecolors="white",
    )
    axes.invert_yaxis()
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_yticks(range(len(depths)), [f"{depth:g} %" for depth in depths])
    axes.set_title(heading, fontsize=9)
    axes.set(xlabel="prompt (tokens)", ylabel="depth of the answer")
    axes.grid(visible=False)
    for (row, column), value in np.ndenumerate(square):
        if np.isfinite(value):
            shade = "white" if value < 0.55 else "black"
            axes.text(column, row, f"{100 * value:.0f}", ha="center", va="center", color=shade, fontsize=8)


def _words(cells: Cells) -> str:
    by_length: dict[int, list[str]] = {}
    for (length, depth), value in sorted(cells.items()):
        by_length.setdefault(length, []).append(f"{100 * value:.0f} at {depth:g} %")
    return "; ".join(f"{length} tokens: {', '.join(parts)}" for length, parts in by_length.items())
