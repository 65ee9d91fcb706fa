"""Figures of curves in panels, with the words for readers who cannot see them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from lengthwise.report.drawing import (
    Curve,
    Picture,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
)
from lengthwise.report.tables import Estimate


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    curves: Sequence[Curve]
    across: str
    """What the horizontal axis is."""
    heading: str = ""
    axis: Callable[[Axes, Sequence[float]], object] = doubling_axis
    """Sets the horizontal axis up for every x of the curves."""
    levels: Sequence[float] = ()
    """Values that get a horizontal line."""
    more: Callable[[Axes], object] = lambda _: None
    """Draws what else belongs into it, after all curves."""


def curve_picture(
    panels: Sequence[Panel],
    *,
    name: str,
    title: str,
    up: str,
    caption: str,
    words: str = "",
    columns: int = 3,
    share_y: bool = True,
) -> Picture | None:
    """The panels that have curves, in rows of `columns`, with one legend; None if there are none.

    Args:
        panels: a label has the same colour in all of them.
        name: file name without ending.
        title: what the figure shows.
        up: what the vertical axis is.
        caption: how to read it.
        words: what the alternative text says besides the ends of the curves.
        columns: panels side by side.
        share_y: one vertical scale for all.
    """
    panels = [panel for panel in panels if panel.curves]
    if not panels:
        return None
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    height = 3.4 if len(panels) == 1 else 2.7 * lines + 0.3
    everything = [curve for panel in panels for curve in panel.curves]
    with drawn(height=height, panels=(lines, columns), legend=everything, share_y=share_y) as (
        figure,
        grid,
    ):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, panel in zip(grid.flat, panels, strict=False):
            draw_curves(axes, panel.curves)
            panel.axis(axes, [x for curve in panel.curves for x in curve.x])
            for level in panel.levels:
                axes.axhline(level, color="#555555", linewidth=0.9)
            axes.set_title(panel.heading, fontsize=10 if columns == 1 else 9)
            axes.set_xlabel(panel.across)
        # Only now: a limit set on an axis that panels share would keep later curves out.
        for axes, panel in zip(grid.flat, panels, strict=False):
            panel.more(axes)
        for axes in grid[:, 0]:
            axes.set_ylabel(up)
        legend_below(figure, *grid.flat)
        across = " or ".join(dict.fromkeys(panel.across for panel in panels))
        parts = [f"{title}. Across: {across}. Up: {up}.", *map(_words, panels), words]
        return picture(figure, name=name, title=title, alt=" ".join(filter(None, parts)), caption=caption)


def _words(panel: Panel) -> str:
    """The ends of each curve."""
    heading = " ".join(panel.heading.split())
    return (f"{heading}: " if heading else "") + " ".join(
        f"{curve.label}: " + ", ".join(dict.fromkeys(_end(curve, end) for end in (0, -1))) + "."
        for curve in panel.curves
        if not curve.faint
    )


def _end(curve: Curve, end: int) -> str:
    return f"{Estimate(curve.y[end]).text} at {curve.x[end]:.0f}"
