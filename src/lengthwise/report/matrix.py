"""The matrix of Eq. 2: how much the predictions from two context lengths differ."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, drawn, picture
from lengthwise.report.numbers import Estimate
from lengthwise.report.series import series_names
from lengthwise.results import Row

_NAMES = {"jeffreys": "Disagreement (Jeffreys)", "sce": "SCE", "entropy": "Entropy part"}
_MOST_NUMBERS = 9
_MOST_SERIES = 4

Cells = dict[tuple[int, int], float]


def misalignment_matrix(
    rows: Sequence[Row], *, metric: str = "jeffreys", name: str = "misalignment-matrix"
) -> Picture | None:
    """Heat map by (l1, l2): one panel for each model (the first four) and L, one colour scale for all.

    Takes the rows of `metric` with `context` and `context_other`, the upper ends of two bins of context
    lengths up to L = `length`. Seeds are averaged; the measure is symmetric, so each pair fills both of its
    cells. None where there are no such rows.
    """
    panels = _panels(rows, metric)
    if not panels:
        return None
    title = f"{_NAMES.get(metric, metric)} of two context lengths"
    top = max(max(cells.values()) for cells in panels.values())
    # Small numbers in thousandths, so that they fit into their cells.
    unit = 0.001 if top < 1 else 1.0
    columns = min(3, len({length for _, length in panels}))
    lines = -(-len(panels) // columns)
    with drawn(height=0.45 + lines * (1.3 + 5.7 / max(2, columns)), panels=(lines, columns)) as (
        figure,
        grid,
    ):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, ((label, length), cells) in zip(grid.flat, panels.items(), strict=False):
            heading = "\n".join([*textwrap.wrap(label, 72 // columns), f"L = {length}"])
            _draw(axes, heading, cells, top, unit)
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}, as a matrix by the two lengths. "
            + " ".join(
                f"{label}, L = {length}: {_extremes(cells)}." for (label, length), cells in panels.items()
            ),
            caption=f"{'Thousandths of a nat' if unit < 1 else 'Nats'} per token. Both contexts end at the same "
            "token; a label is the upper end of a bin of context lengths.",
        )


def _panels(rows: Sequence[Row], metric: str) -> dict[tuple[str, int], Cells]:
    """Cells by model and L, for the models that come first."""
    ours = [r for r in rows if r.task == "misalignment" and r.reference is None and r.position is None]
    chosen = [r for r in ours if r.metric == metric and r.context_other is not None]
    found: dict[tuple[str, int], dict[tuple[int, int], list[float]]] = {}
    for row, label in zip(chosen, series_names(chosen), strict=True):
        if row.value is None or row.length is None or row.context is None or row.context_other is None:
            continue
        pair = (row.context, row.context_other)
        found.setdefault((label, row.length), {}).setdefault(pair, []).append(row.value)
    series = list(dict.fromkeys(label for label, _ in found))[:_MOST_SERIES]
    return {
        (label, owner): {pair: fmean(values) for pair, values in cells.items()}
        for (label, owner), cells in found.items()
        if label in series
    }


def _draw(axes: Axes, heading: str, cells: Cells, top: float, unit: float) -> None:
    lengths = sorted({length for pair in cells for length in pair})
    place = {length: index for index, length in enumerate(lengths)}
    square = np.full((len(lengths), len(lengths)), np.nan)
    for (one, other), value in cells.items():
        square[place[one], place[other]] = square[place[other], place[one]] = value
    # Not imshow, which would put a bitmap into the drawing.
    edges = np.arange(len(lengths) + 1) - 0.5
    axes.pcolormesh(edges, edges, square, cmap="cividis", vmin=0, vmax=top or 1, edgecolors="white")
    axes.set_aspect("equal")
    axes.set_xticks(range(len(lengths)), [str(length) for length in lengths], rotation=45)
    axes.set_yticks(range(len(lengths)), [str(length) for length in lengths])
    axes.set_title(heading, fontsize=9)
    axes.set(xlabel="context l1 (tokens)", ylabel="context l2 (tokens)")
    axes.grid(visible=False)
    if len(lengths) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(square):
            if np.isfinite(value):
                shade = "white" if value < 0.55 * (top or 1) else "black"
                axes.text(
                    column, row, _short(value / unit), ha="center", va="center", color=shade, fontsize=8
                )


def _short(value: float) -> str:
    """Two significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.095 else f"{value:.2g}"


def _extremes(cells: Cells) -> str:
    low, high = min(cells, key=cells.__getitem__), max(cells, key=cells.__getitem__)
    return (
        f"from {Estimate(cells[low]).text} at {low[0]} and {low[1]} tokens "
        f"to {Estimate(cells[high]).text} at {high[0]} and {high[1]} tokens"
    )
