"""The matrix of Eq. 2: how much the predictions from two context lengths differ."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, drawn, picture
from lengthwise.report.numbers import Estimate
from lengthwise.report.series import series_names
from lengthwise.results import Row

MOST_PANELS = 4
_MOST_NUMBERS = 9
_NAMES = {"jeffreys": "Disagreement (Jeffreys)", "sce": "SCE", "entropy": "Entropy part"}

Cells = dict[tuple[int, int], float]


def misalignment_matrix(
    rows: Sequence[Row], *, metric: str = "jeffreys", name: str = "misalignment-matrix"
) -> Picture | None:
    """Heat map by (l1, l2): one panel for each model (the first four), one colour scale for all.

    Takes the rows of `metric` with `length` and `length_other`; seeds are averaged; the measure is
    symmetric, so each pair fills both of its cells. None where there are no such rows.
    """
    panels = _panels(rows, metric)
    if not panels:
        return None
    what = {"jeffreys": "Disagreement (Jeffreys)", "sce": "SCE", "entropy": "Entropy part"}.get(
        metric, metric
    )
    title = f"{what} of two context lengths"
    top = max(max(cells.values()) for cells in panels.values())
    columns = min(2, len(panels))
    lines = -(-len(panels) // columns)
    with drawn(height=3.3 * lines + 0.4, panels=(lines, columns)) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (label, cells) in zip(grid.flat, panels.items(), strict=False):
            _draw(axes, label, cells, top)
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}, as a matrix by the two lengths. "
            + " ".join(f"{label}: {_extremes(cells)}." for label, cells in panels.items()),
            caption="Nats per token. Both contexts end at the same token; on the diagonal they are the same.",
        )


def _panels(rows: Sequence[Row], metric: str) -> dict[str, Cells]:
    chosen = [
        r
        for r in rows
        if r.task == "misalignment" and r.metric == metric and r.position is None and r.reference is None
    ]
    found: dict[str, dict[tuple[int, int], list[float]]] = {}
    for row, label in zip(chosen, series_names(chosen), strict=True):
        if row.value is not None and row.length is not None and row.length_other is not None:
            pair = (max(row.length, row.length_other), min(row.length, row.length_other))
            found.setdefault(label, {}).setdefault(pair, []).append(row.value)
    return {
        label: {pair: fmean(values) for pair, values in cells.items()}
        for label, cells in list(found.items())[:MOST_PANELS]
    }


def _draw(axes: Axes, label: str, cells: Cells, top: float) -> None:
    lengths = sorted({length for pair in cells for length in pair})
    place = {length: index for index, length in enumerate(lengths)}
    square = np.full((len(lengths), len(lengths)), np.nan)
    for (one, other), value in cells.items():
        square[place[one], place[other]] = square[place[other], place[one]] = value
    # Not imshow, which would put a bitmap into the drawing.
    edges = np.arange(len(lengths) + 1) - 0.5
    axes.pcolormesh(edges, edges, square, cmap="cividis", vmin=0, vmax=top or 1, edgecolors="white")
    axes.set_aspect("equal")
    ticks = range(len(lengths))
    axes.set_xticks(ticks, [str(length) for length in lengths], rotation=45 if len(lengths) > 5 else 0)
    axes.set_yticks(ticks, [str(length) for length in lengths])
    axes.set(title=label, xlabel="context l1 (tokens)", ylabel="context l2 (tokens)")
    axes.grid(visible=False)
    if len(lengths) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(square):
            if np.isfinite(value):
                shade = "white" if value < 0.55 * (top or 1) else "black"
                axes.text(column, row, f"{value:.2g}", ha="center", va="center", color=shade, fontsize=8)


def _extremes(cells: Cells) -> str:
    low, high = min(cells, key=cells.__getitem__), max(cells, key=cells.__getitem__)
    return (
        f"from {Estimate(cells[low]).text} at {low[0]} and {low[1]} tokens "
        f"to {Estimate(cells[high]).text} at {high[0]} and {high[1]} tokens"
    )
