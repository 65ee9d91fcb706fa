"""Heat maps: disagreement by the two context lengths of Eq. 2, scores by length and depth."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from statistics import fmean

import numpy as np
from matplotlib.axes import Axes

from lengthwise.report.drawing import Picture, drawn, in_both_widths, picture
from lengthwise.report.tables import Estimate, series_names
from lengthwise.results import Row

_MOST_NUMBERS = 9
_MOST_PANELS = 12

Cells = dict[tuple[float, float], float]
"""Value by (down, across)."""


def misalignment_matrix(rows: Sequence[Row]) -> Picture | None:
    """Jeffreys by (l1, l2): one panel for each model and L (the first 12), one colour scale for all.

    Takes the rows with `context` and `context_other`, the upper ends of two bins of context lengths up to
    L = `length`. Seeds are averaged; the measure is symmetric, so each pair fills both of its cells. None where
    there are no such rows.
    """
    rows = [row for row in rows if row.metric == "jeffreys" and row.reference is None]
    rows = [row for row in rows if row.context_other is not None]
    names = [f"{name}, L = {row.length}" for row, name in zip(rows, series_names(rows), strict=True)]
    panels = _cells(rows, names, lambda row: (row.context or 0, row.context_other or 0))
    if not panels:
        return None
    top = max(max(cells.values()) for cells in panels.values())
    # Small numbers in thousandths, so that they fit into their cells.
    unit = 0.001 if top < 1 else 1.0
    title = "Disagreement (Jeffreys) of two context lengths"
    words = " ".join(f"{name}: {_extremes(cells)}." for name, cells in panels.items())

    def drawing(file: str, columns: int, width: float) -> Picture:
        lines = -(-len(panels) // columns)
        height = 0.45 + lines * (1.3 + 5.7 / max(2, columns))
        with drawn(height=height, panels=(lines, columns), width=width) as (figure, grid):
            for axes, (name, cells) in zip(grid.flat, panels.items(), strict=False):
                both = cells | {(other, one): value for (one, other), value in cells.items()}
                _draw(axes, both, unit=unit, top=top or 1)
                axes.set_title(textwrap.fill(name, int(10 * width) // columns), fontsize=9)
                axes.set_aspect("equal")
                axes.tick_params(axis="x", rotation=45)
                axes.set(xlabel="context l1 (tokens)", ylabel="context l2 (tokens)")
            return picture(
                figure,
                name=file,
                title=title,
                alt=f"{title}, as a matrix by the two lengths. {words}",
                caption=f"{'Thousandths of a nat' if unit < 1 else 'Nats'} per token. Both contexts end at the same "
                "token; a label is the upper end of a bin of context lengths." + _cut(names),
            )

    return in_both_widths(drawing, "misalignment-matrix", min(3, len({row.length for row in rows})))


def score_by_depth(rows: Sequence[Row]) -> Picture | None:
    """One panel for each model (the first 12): length across, depth down, a share in each cell.

    Takes the rows of one task that have a length and a depth. Seeds are averaged. None where there are none.
    """
    found = dict.fromkeys(row.metric for row in rows if row.reference is None and row.depth is not None)
    metric = next((name for name in ("accuracy", "contained") if name in found), next(iter(found), None))
    ours = [row for row in rows if row.metric == metric and row.depth is not None and row.length is not None]
    panels = _cells(ours, series_names(ours), lambda row: (row.depth or 0, row.length or 0))
    if not panels:
        return None
    chance = next((row.value for row in rows if row.metric == "chance" and row.value), None)
    depths = max(len({depth for depth, _ in cells}) for cells in panels.values())
    title = f"{ours[0].task}: {metric} by length and depth"
    words = " ".join(f"{name}: {_words(cells)}." for name, cells in panels.items())

    def drawing(file: str, columns: int, width: float) -> Picture:
        lines = -(-len(panels) // columns)
        height = 0.9 + lines * (1.3 + 0.32 * depths)
        with drawn(height=height, panels=(lines, columns), width=width) as (figure, grid):
            for axes, (name, cells) in zip(grid.flat, panels.items(), strict=False):
                _draw(axes, cells, unit=0.01, top=1, down_tick="{:g} %")
                axes.set_title(textwrap.fill(name, int(11 * width) // columns), fontsize=9)
                axes.invert_yaxis()
                axes.set(xlabel="prompt (tokens)", ylabel="depth of the answer")
            return picture(
                figure,
                name=file,
                title=title,
                alt=f"{title}, in per cent. {words}",
                caption="Per cent of the samples. The depth is the place of the answer in the context: 0 is the "
                "beginning, 100 the end, next to the question."
                + (f" Guessing gives {100 * chance:.0f}." if chance else "")
                + _cut(series_names(ours)),
            )

    return in_both_widths(drawing, f"depth-{ours[0].task}", min(3, len(panels)))


def _cells(
    rows: Sequence[Row], names: Sequence[str], place: Callable[[Row], tuple[float, float]]
) -> dict[str, Cells]:
    """The mean value of each cell, for each of the names that come first."""
    found: dict[str, dict[tuple[float, float], list[float]]] = {}
    for row, name in zip(rows, names, strict=True):
        if row.value is not None:
            found.setdefault(name, {}).setdefault(place(row), []).append(row.value)
    return {
        name: {at: fmean(values) for at, values in cells.items()}
        for name, cells in list(found.items())[:_MOST_PANELS]
    }


def _cut(names: Sequence[str]) -> str:
    """What is left out of a picture of these panels; "" where all are drawn."""
    count = len({*names})
    return f" The first {_MOST_PANELS} of {count} are drawn." if count > _MOST_PANELS else ""


def _draw(axes: Axes, cells: Cells, *, unit: float, top: float, down_tick: str = "{:g}") -> None:
    """The cells; where there are few, with their numbers in `unit`, two significant digits."""
    down, across = (sorted({place[side] for place in cells}) for side in (0, 1))
    values = np.full((len(down), len(across)), np.nan)
    for (one, other), value in cells.items():
        values[down.index(one), across.index(other)] = value
    # Not imshow, which would put a bitmap into the drawing.
    edges = (np.arange(len(side) + 1) - 0.5 for side in (across, down))
    axes.pcolormesh(*edges, values, cmap="cividis", vmin=0, vmax=top, edgecolors="white")
    axes.grid(visible=False)
    axes.set_xticks(range(len(across)), [f"{at:g}" for at in across])
    axes.set_yticks(range(len(down)), [down_tick.format(at) for at in down])
    for (row, column), value in np.ndenumerate(values):
        if len(across) <= _MOST_NUMBERS and np.isfinite(value):
            number = f"{value / unit:.0f}" if value / unit >= 9.95 else f"{value / unit:.2g}"
            # Not white and black, which a dark screen turns round.
            shade = "#fefefe" if value < 0.55 * top else "#010101"
            axes.text(column, row, number, ha="center", va="center", color=shade, fontsize=8)


def _extremes(cells: Cells) -> str:
    low, high = (
        f"{Estimate(cells[place]).text} at {place[0]} and {place[1]} tokens"
        for place in (min(cells, key=cells.__getitem__), max(cells, key=cells.__getitem__))
    )
    return f"from {low} to {high}"


def _words(cells: Cells) -> str:
    by_length: dict[float, list[str]] = {}
    for (depth, length), value in sorted(cells.items(), key=lambda cell: (cell[0][1], cell[0][0])):
        by_length.setdefault(length, []).append(f"{100 * value:.0f} at {depth:g} %")
    return "; ".join(f"{length} tokens: {', '.join(parts)}" for length, parts in by_length.items())
