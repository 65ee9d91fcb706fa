"""The one look of all figures, and pictures as self-contained SVG that is the same bytes every time."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator
from matplotlib.transforms import offset_copy

from lengthwise.report.row_tables import series_names
from lengthwise.results import Row

# Okabe and Ito's colours without yellow (too pale on white): told apart by people with any colour blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
WIDTH = 7.2
"""Inches; the text column of the page."""

_WIDEST_SHIFT = 12.0
"""Points between the first and the last of curves side by side."""
_MOST_BANDS = 3
"""More of them on one panel cover each other."""

_STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.use_mathtext": True,
    "axes.edgecolor": "#555555",
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    # The same drawing gives the same bytes: no random ids; shapes instead of fonts the reader may lack.
    "svg.hashsalt": "lengthwise",
    "svg.fonttype": "path",
}
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A finished figure.

    Args:
        name: file name without ending; also makes the ids inside the page unique.
        title: what it shows.
        alt: what a reader who cannot see it needs to know: axes, curves, their ends.
        caption: how to read it.
        svg: the drawing, one `<svg>` element.
    """

    name: str
    title: str
    alt: str
    caption: str
    svg: str


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line: points by x, each with its 95 % interval where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = field(default_factory=tuple)
    high: Sequence[float | None] = field(default_factory=tuple)
    style: int = 0
    """Which colour and marker; curves of one thing share it."""
    dash: int = 0
    """Which dash; tells apart curves of one colour."""
    faint: bool = False
    """One seed of several, behind their mean: no marker, no place in the legend."""


@contextmanager
def drawn(
    *,
    height: float,
    panels: tuple[int, int] = (1, 1),
    legend: Sequence[Curve] = (),
    share_y: bool = False,
) -> Iterator[tuple[Figure, Any]]:
    """A figure in our style with its axes in a grid [rows, columns]; use it only inside the block.

    `height` is in inches; room for the legend of the curves in `legend` is added to it.
    """
    if legend:
        labels = _labels(legend)
        height += 0.15 + 0.2 * -(-len(labels) // _legend_columns(labels))
    with mpl.rc_context():
        # A reader's own matplotlibrc must not change the pictures.
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(h_pad=0.08, w_pad=0.08)  # type: ignore[union-attr]
        yield figure, figure.subplots(*panels, squeeze=False, sharey=share_y)


def picture(figure: Figure, *, name: str, title: str, alt: str, caption: str) -> Picture:
    """The figure as a `Picture`; call it inside the `drawn` block."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=_NO_METADATA)
    svg = _element(stream.getvalue(), name=name, alt=alt)
    return Picture(name=name, title=title, alt=alt, caption=caption, svg=svg)


def draw_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Lines with markers and their intervals: bands, or bars side by side where bands would cover each other."""
    shown = [curve for curve in curves if not curve.faint]
    several = len(shown) > _MOST_BANDS
    for curve in curves:
        color = COLORS[curve.style % len(COLORS)]
        if curve.faint:
            axes.plot(curve.x, curve.y, color=color, linewidth=0.8, alpha=0.45)
            continue
        # Beside each other, so that equal values stay visible; in all by so little that x can still be read.
        apart = min(4.0, _WIDEST_SHIFT / max(1, len(shown) - 1))
        shift = apart * (shown.index(curve) - (len(shown) - 1) / 2) if several else 0.0
        place = offset_copy(axes.transData, axes.get_figure(), x=shift, units="points")  # pyright: ignore[reportArgumentType]
        many = len(curve.x) > 40
        [line] = axes.plot(
            curve.x,
            curve.y,
            color=color,
            linestyle=DASHES[(curve.dash + curve.style // len(COLORS)) % len(DASHES)],
            marker="" if many else MARKERS[curve.style % len(MARKERS)],
            label=curve.label,
        )
        # Only now: the axes take their limits from lines as they are added.
        line.set_transform(place)
        banded = [
            (x, low, high)
            for x, low, high in zip(curve.x, curve.low, curve.high, strict=False)
            if low is not None and high is not None
        ]
        if several:
            for x, low, high in banded:
                [bar] = axes.plot([x, x], [low, high], color=color, linewidth=1.0, alpha=0.7)
                bar.set_transform(place)
        elif len(banded) > 1:
            across, lows, highs = zip(*banded, strict=True)
            axes.fill_between(across, lows, highs, color=color, alpha=0.16, linewidth=0)
        elif banded:
            x, low, high = banded[0]
            axes.plot([x, x], [low, high], color=color, linewidth=1.2)


def curves_of(
    rows: Sequence[Row], x_of: Callable[[Row], float], *, series: Sequence[str] = ()
) -> list[Curve]:
    """One curve for each series, in order of appearance, points sorted by x.

    Rows without a value are left out. Several seeds of one series become faint curves and their mean. `series` are
    the names of a whole figure, so that a name has one colour in all of its panels.
    """
    styles = {name: style for style, name in enumerate(dict.fromkeys([*series, *series_names(rows)]))}
    by_name: dict[str, dict[int | None, list[Row]]] = {}
    for row, name in zip(rows, series_names(rows), strict=True):
        if row.value is not None:
            by_name.setdefault(name, {}).setdefault(row.seed, []).append(row)
    curves: list[Curve] = []
    for name, seeds in by_name.items():
        of_seeds = [_curve(name, styles[name], rows_of_seed, x_of) for rows_of_seed in seeds.values()]
        if len(of_seeds) == 1:
            curves += of_seeds
        else:
            curves += [replace(curve, faint=True, low=(), high=()) for curve in of_seeds]
            curves.append(_mean(f"{name} (mean of {len(of_seeds)} seeds)", of_seeds))
    return curves


def doubling_axis(axes: Axes, values: Sequence[float], *, apart: float = 2**0.25) -> None:
    """A base-2 axis with ticks at the measured values; the next tick is at least `apart` times the one before."""
    axes.set_xscale("log", base=2)
    ticks: list[float] = []
    for value in sorted(set(values)):
        if not ticks or value >= ticks[-1] * apart:
            ticks.append(value)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0f}"))
    axes.xaxis.set_minor_locator(NullLocator())
    if len(set(values)) == 1:
        axes.set_xlim(values[0] / 2, values[0] * 2)


def token_axis(axes: Axes, values: Sequence[float], *, ticks: int) -> None:
    """A linear axis of tokens with about `ticks` ticks at multiples of a power of two.

    It begins at 0 unless most of it would be empty.
    """
    first, last = min(values), max(values)
    start = first if first > last / 3 else 0
    margin = (last - start) / 20 or 1
    step = 2 ** max(0, math.ceil(math.log2((last + margin - start) / ticks)))
    axes.set_xlim(start - margin if start else 0, last + margin)
    axes.xaxis.set_major_locator(MultipleLocator(step))


def legend_below(figure: Figure, *panels: Axes) -> None:
    """One legend under all panels, outside of them."""
    handles = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        labels = list(handles)
        figure.legend(handles.values(), labels, loc="outside lower left", ncols=_legend_columns(labels))


def _labels(curves: Sequence[Curve]) -> list[str]:
    return list(dict.fromkeys(curve.label for curve in curves if not curve.faint))


def _legend_columns(labels: Sequence[str]) -> int:
    """How many fit side by side: about 105 letters, 8 of them the line and the gap of each."""
    return max(1, min(len(labels), 105 // (max(map(len, labels)) + 8)))


def _element(document: str, *, name: str, alt: str) -> str:
    """The `<svg>` element alone, with its description, and with ids that are unique in a page."""
    svg = document[document.index("<svg") :]
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label={quoteattr(alt)} ', 1).strip()


def _curve(name: str, style: int, rows: list[Row], x_of: Callable[[Row], float]) -> Curve:
    points = sorted((x_of(row), row.value, row.ci_low, row.ci_high) for row in rows if row.value is not None)
    x, y, low, high = (list(column) for column in zip(*points, strict=True))
    return Curve(label=name, x=x, y=y, low=low, high=high, style=style)


def _mean(label: str, curves: list[Curve]) -> Curve:
    at: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in zip(curve.x, curve.y, strict=True):
            at.setdefault(x, []).append(y)
    # A mean over fewer seeds at some x would bend the curve for no reason in the model.
    whole = sorted(x for x, values in at.items() if len(values) == len(curves))
    return Curve(label=label, x=whole, y=[fmean(at[x]) for x in whole], style=curves[0].style)
