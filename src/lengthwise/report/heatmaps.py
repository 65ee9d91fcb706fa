"""Heat maps: disagreement by the two context lengths of Eq. 2, scores by length and depth."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, drawn, picture
from lengthwise.report.row_tables import series_names
from lengthwise.report.tables import Estimate
from lengthwise.results import Row

_MOST_NUMBERS = 9
_MOST_MATRICES = 4
_MOST_DEPTHS = 6

Cells = dict[tuple[float, float], float]
"""Value by (down, across)."""


def misalignment_matrix(rows: Sequence[Row]) -> Picture | None:
    """Jeffreys by (l1, l2): one panel for each model (the first four) and L, one colour scale for all.

    Takes the rows with `context` and `context_other`, the upper ends of two bins of context lengths up to
    L = `length`. Seeds are averaged; the measure is symmetric, so each pair fills both of its cells. None where
    there are no such rows.
    """
    chosen = [
        r for r in rows if r.metric == "jeffreys" and r.reference is None and r.context_other is not None
    ]
    panels = _cells(
        chosen, lambda r: (r.length,), lambda r: (r.context, r.context_other), most=_MOST_MATRICES
    )
    if not panels:
        return None
    title = "Disagreement (Jeffreys) of two context lengths"
    top = max(max(cells.values()) for cells in panels.values())
    # Small numbers in thousandths, so that they fit into their cells.
    unit = 0.001 if top < 1 else 1.0
    columns, lines = _grid(len(panels), len({length for _, length in panels}))
    with drawn(height=0.45 + lines * (1.3 + 5.7 / max(2, columns)), panels=(lines, columns)) as (
        figure,
        grid,
    ):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, ((label, length), cells) in zip(grid.flat, panels.items(), strict=False):
            heading = "\n".join([*textwrap.wrap(label, 72 // columns), f"L = {length}"])
            both = cells | {(other, one): value for (one, other), value in cells.items()}
            down, across = _draw(axes, heading, both, top or 1, lambda value: _short(value / unit))
            axes.set_aspect("equal")
            axes.set_xticks(range(len(across)), [f"{length:g}" for length in across], rotation=45)
            axes.set_yticks(range(len(down)), [f"{length:g}" for length in down])
            axes.set(xlabel="context l1 (tokens)", ylabel="context l2 (tokens)")
        return picture(
            figure,
            name="misalignment-matrix",
            title=title,
            alt=f"{title}, as a matrix by the two lengths. "
            + " ".join(
                f"{label}, L = {length}: {_extremes(cells)}." for (label, length), cells in panels.items()
            ),
            caption=f"{'Thousandths of a nat' if unit < 1 else 'Nats'} per token. Both contexts end at the same "
            "token; a label is the upper end of a bin of context lengths.",
        )


def score_by_depth(rows: Sequence[Row]) -> Picture | None:
    """One panel for each model: length across, depth down, a share in each cell.

    Takes the rows of one task that have a length and a depth. Seeds are averaged. None where there are none.
    """
    found = dict.fromkeys(r.metric for r in rows if r.reference is None and r.depth is not None)
    metric = next((name for name in ("accuracy", "contained") if name in found), next(iter(found), None))
    ours = [r for r in rows if r.metric == metric and r.depth is not None and r.length is not None]
    panels = _cells(ours, lambda _: (), lambda r: (r.depth, r.length), most=_MOST_DEPTHS)
    if not panels:
        return None
    task = ours[0].task
    chance = next((r.value for r in rows if r.metric == "chance" and r.value), None)
    columns, lines = _grid(len(panels), len(panels))
    title = f"{task}: {metric} by length and depth"
    depths = max(len({depth for depth, _ in cells}) for cells in panels.values())
    with drawn(height=0.9 + lines * (1.3 + 0.32 * depths), panels=(lines, columns)) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, ((label,), cells) in zip(grid.flat, panels.items(), strict=False):
            heading = "\n".join(textwrap.wrap(label, 80 // columns))
            down, across = _draw(axes, heading, cells, 1, lambda value: f"{100 * value:.0f}")
            axes.invert_yaxis()
            axes.set_xticks(range(len(across)), [f"{length:g}" for length in across])
            axes.set_yticks(range(len(down)), [f"{depth:g} %" for depth in down])
            axes.set(xlabel="prompt (tokens)", ylabel="depth of the answer")
        by_chance = f" Guessing gives {100 * chance:.0f}." if chance else ""
        return picture(
            figure,
            name=f"depth-{task}",
            title=title,
            alt=f"{title}, in per cent. "
            + " ".join(f"{label}: {_words(cells)}." for (label,), cells in panels.items()),
            caption="Per cent of the samples. The depth is the place of the answer in the context: 0 is the "
            f"beginning, 100 the end, next to the question.{by_chance}",
        )


def _grid(panels: int, columns: int) -> tuple[int, int]:
    """Columns, at most three, and the lines that they need."""
    columns = min(3, columns)
    return columns, -(-panels // columns)


def _cells(
    rows: Sequence[Row],
    panel_of: Callable[[Row], tuple[Any, ...]],
    cell_of: Callable[[Row], tuple[Any, Any]],
    *,
    most: int,
) -> Mapping[tuple[Any, ...], Cells]:
    """Mean values by cell, for each panel of the `most` series that come first; a panel is (series, *panel_of)."""
    found: dict[tuple[Any, ...], dict[tuple[float, float], list[float]]] = {}
    for row, label in zip(rows, series_names(rows), strict=True):
        if row.value is not None:
            found.setdefault((label, *panel_of(row)), {}).setdefault(cell_of(row), []).append(row.value)
    series = list(dict.fromkeys(panel[0] for panel in found))[:most]
    return {
        panel: {cell: fmean(values) for cell, values in cells.items()}
        for panel, cells in found.items()
        if panel[0] in series
    }


def _draw(
    axes: Axes, heading: str, cells: Cells, top: float, text: Callable[[float], str]
) -> tuple[list[float], list[float]]:
    """The cells, with their numbers where there are few; returns the values down and across."""
    down, across = (sorted({place[side] for place in cells}) for side in (0, 1))
    square = np.full((len(down), len(across)), np.nan)
    for (one, other), value in cells.items():
        square[down.index(one), across.index(other)] = value
    # Not imshow, which would put a bitmap into the drawing.
    edges = (np.arange(len(side) + 1) - 0.5 for side in (across, down))
    axes.pcolormesh(*edges, square, cmap="cividis", vmin=0, vmax=top, edgecolors="white")
    axes.set_title(heading, fontsize=9)
    axes.grid(visible=False)
    if len(across) <= _MOST_NUMBERS:
        for (row, column), value in np.ndenumerate(square):
            if np.isfinite(value):
                shade = "white" if value < 0.55 * top else "black"
                axes.text(column, row, text(value), ha="center", va="center", color=shade, fontsize=8)
    return down, across


def _short(value: float) -> str:
    """Two significant digits, without an exponent."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.095 else f"{value:.2g}"


def _extremes(cells: Cells) -> str:
    return " ".join(
        f"{word} {Estimate(cells[place]).text} at {place[0]} and {place[1]} tokens"
        for word, place in (
            ("from", min(cells, key=cells.__getitem__)),
            ("to", max(cells, key=cells.__getitem__)),
        )
    )


def _words(cells: Cells) -> str:
    by_length: dict[float, list[str]] = {}
    for (depth, length), value in sorted(cells.items(), key=lambda cell: (cell[0][1], cell[0][0])):
        by_length.setdefault(length, []).append(f"{100 * value:.0f} at {depth:g} %")
    return "; ".join(f"{length} tokens: {', '.join(parts)}" for length, parts in by_length.items())
