"""The one look of all figures: curves in panels, and pictures as self-contained SVG, the same bytes every time."""

from __future__ import annotations

import io
import math
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any
from xml.sax.saxutils import quoteattr

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MultipleLocator, NullLocator
from matplotlib.transforms import offset_copy

from lengthwise.report.dark_pictures import with_dark_colors
from lengthwise.report.tables import Estimate, series_names
from lengthwise.results import Row

# Okabe and Ito's colours without yellow (too pale on white): told apart by people with any colour blindness.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")
WIDTH, NARROW = 7.2, 4.4
"""Inches; the text column of the page, and of a page on a phone."""

_WIDEST_SHIFT = 12.0
"""Points between the first and the last of curves side by side."""
_MOST_BANDS = 3
"""More of them on one panel cover each other."""

_STYLE = Path(__file__).with_name("figures.mplstyle")
FIGURE_BEGINS = '<svg role="img" aria-label='
_NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


class _Figure(Figure):
    """A figure that a notebook shows without pyplot, which we leave to the user."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        self.savefig(stream, format="png", metadata={"Software": None})
        return stream.getvalue()


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A finished figure: file name without ending, one `<svg>` element, how to read it.

    `alt` is what a reader who cannot see it needs to know: axes, curves, their ends.
    """

    name: str
    alt: str
    caption: str
    svg: str
    figure: Figure
    """What it is a print of."""
    narrow: str = ""
    """Another `<svg>` for a phone, with its panels below one another; empty if there is none."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One line: points by x, each with its 95 % interval where there is one."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    style: int = 0
    """Which colour and marker; curves of one thing share it."""
    faint: bool = False
    """One seed of several, behind their mean: no marker, no place in the legend."""


@contextmanager
def drawn(
    *,
    height: float,
    panels: tuple[int, int] = (1, 1),
    legend: Sequence[Curve] = (),
    share_y: bool = False,
    width: float = WIDTH,
) -> Iterator[tuple[Figure, Any]]:
    """A figure in our style with its axes in a grid [rows, columns]; use it only inside the block.

    `height` and `width` are in inches; room for the legend of the curves in `legend` is added to it.
    """
    labels = list(dict.fromkeys(curve.label for curve in legend if not curve.faint))
    if labels:
        height += 0.15 + 0.2 * -(-len(labels) // _legend_columns(labels, width))
    with mpl.rc_context():
        # A reader's own matplotlibrc must not change the pictures.
        mpl.rcdefaults()
        mpl.rcParams.update(mpl.rc_params_from_file(_STYLE, use_default_template=False))
        figure = _Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        figure.get_layout_engine().set(h_pad=0.08, w_pad=0.08)  # type: ignore[union-attr]
        yield figure, figure.subplots(*panels, squeeze=False, sharey=share_y)


def picture(figure: Figure, *, name: str, title: str, alt: str, caption: str) -> Picture:
    """The figure as a `Picture`, without the axes that have no data; call it inside the `drawn` block."""
    for axes in figure.axes:
        axes.set_visible(axes.has_data())
    lines = textwrap.fill(title, int(8 * figure.get_figwidth()))
    figure.suptitle(lines, x=0.01, ha="left", fontsize=11.5, fontweight="bold")
    for text in figure.findobj(Text):
        # The numbers of ticks are written later, some of them as formulas.
        if isinstance(text, Text) and text.get_text():
            text.set(text=drawable(text.get_text(), text.get_fontproperties()), parse_math=False)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata=_NO_METADATA)
    document = stream.getvalue()
    svg = document[document.index("<svg") :]
    # Ids that are unique in a page.
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(href="|url\()#', rf"\1#{name}-", svg)
    svg = svg.replace("<svg ", f"{FIGURE_BEGINS}{quoteattr(alt)} ", 1).strip()
    return Picture(name=name, alt=alt, caption=caption, svg=with_dark_colors(svg), figure=figure)


def drawable(words: str, font: FontProperties) -> str:
    """The words with escapes for what the font has no sign for: Chinese names would be boxes."""
    signs = get_font(findfont(font)).get_charmap()
    return "".join(each if ord(each) in signs or each == "\n" else f"\\u{ord(each):04x}" for each in words)


def in_both_widths(drawing: Callable[[str, int, float], Picture], name: str, columns: int) -> Picture:
    """What `drawing` makes of a name, panels in a row and inches: so many panels, and for a phone one."""
    return replace(drawing(name, columns, WIDTH), narrow=drawing(f"{name}-narrow", 1, NARROW).svg)


def draw_curves(axes: Axes, curves: Sequence[Curve]) -> None:
    """Lines with markers and their intervals: bands, or bars side by side where bands would cover each other."""
    shown = [curve for curve in curves if not curve.faint]
    several = len(shown) > _MOST_BANDS or all(len(curve.x) == 1 for curve in shown)
    for curve in curves:
        color = COLORS[curve.style % len(COLORS)]
        if curve.faint:
            axes.plot(curve.x, curve.y, color=color, linewidth=0.8, alpha=0.45)
            continue
        # Side by side, so that equal values stay visible; in all by so little that x can still be read.
        apart = min(4.0, _WIDEST_SHIFT / max(1, len(shown) - 1))
        shift = apart * (shown.index(curve) - (len(shown) - 1) / 2) if several else 0.0
        place = offset_copy(axes.transData, axes.get_figure(), x=shift, units="points")  # pyright: ignore[reportArgumentType]
        [line] = axes.plot(
            curve.x,
            curve.y,
            color=color,
            linestyle=DASHES[curve.style // len(COLORS) % len(DASHES)],
            marker="" if len(curve.x) > 40 else MARKERS[curve.style % len(MARKERS)],
            # matplotlib leaves names that begin with _ out of a legend.
            label=f" {curve.label}",
        )
        # Only now: the axes take their limits from lines as they are added.
        line.set_transform(place)
        ends = [end for end in zip(curve.x, curve.low, curve.high, strict=False) if None not in end]
        if len(ends) > 1 and not several:
            axes.fill_between(*zip(*ends, strict=True), color=color, alpha=0.16, linewidth=0)  # pyright: ignore
            continue
        for x, low, high in ends:
            [bar] = axes.plot([x, x], [low, high], color=color, linewidth=1.0, alpha=0.7)  # pyright: ignore
            bar.set_transform(place)


def curves_of(
    rows: Sequence[Row], x_of: Callable[[Row], float], *, series: Sequence[str] = ()
) -> list[Curve]:
    """One curve for each series, in order of appearance, points sorted by x.

    Rows without a value are left out. Several seeds of one series become faint curves and their mean. `series` are
    the names of a whole figure, so that a name has one colour in all of its panels.
    """
    names = series_names(rows)
    styles = {name: style for style, name in enumerate(dict.fromkeys([*series, *names]))}
    found: dict[str, dict[int | None, list[Row]]] = {}
    for row, name in zip(rows, names, strict=True):
        if row.value is not None:
            found.setdefault(name, {}).setdefault(row.seed, []).append(row)
    curves: list[Curve] = []
    for name, by_seed in found.items():
        of_seeds: list[Curve] = []
        for ours in by_seed.values():
            points = sorted((x_of(row), row.value, row.ci_low, row.ci_high) for row in ours)
            x, y, low, high = map(list, zip(*points, strict=True))
            of_seeds.append(Curve(label=name, x=x, y=y, low=low, high=high, style=styles[name]))
        if len(of_seeds) == 1:
            curves += of_seeds
            continue
        # A mean over fewer seeds at some x would bend the curve for no reason in the model.
        values = [dict(zip(curve.x, curve.y, strict=True)) for curve in of_seeds]
        whole = sorted(set(values[0]).intersection(*values))
        mean = [fmean(one[x] for one in values) for x in whole]
        curves += [replace(curve, faint=True, low=(), high=()) for curve in of_seeds]
        label = f"{name} (mean of {len(of_seeds)} seeds)"
        curves.append(Curve(label=label, x=whole, y=mean, style=styles[name]))
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
        labels = [label.removeprefix(" ") for label in handles]
        columns = _legend_columns(labels, figure.get_figwidth())
        figure.legend(handles.values(), labels, loc="outside lower left", ncols=columns)


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """How many fit side by side: about 105 letters in our width, 8 of them the line and the gap of each."""
    return max(1, min(len(labels), int(105 * width / WIDTH) // (max(map(len, labels)) + 8)))


def curve_picture(
    panels: Mapping[str, Sequence[Curve]],
    *,
    name: str,
    title: str,
    across: str | Mapping[str, str],
    up: str,
    caption: str,
    words: str = "",
    columns: int = 3,
    share_y: bool = True,
    levels: Sequence[float] = (),
    from_zero: Sequence[str] = (),
    dress: Callable[[Axes, str, Sequence[float]], object] = lambda axes, _, x: doubling_axis(axes, x),
) -> Picture | None:
    """The panels that have curves, by heading, in rows of `columns`, with one legend; None if there are none.

    A label has the same colour in all panels. `across` and `up` are what the axes are, `across` by heading where
    panels differ. The vertical axis has one scale for all panels if `share_y`, and begins at 0 in the panels
    `from_zero`. `words` is what the alternative text says besides the ends of the curves; `levels` get a horizontal
    line. `dress` is given a panel, its heading and every x of its curves, sets its horizontal axis up, and draws what
    else belongs into it.
    """
    panels = {heading: curves for heading, curves in panels.items() if curves}
    if not panels:
        return None
    everything = [curve for curves in panels.values() for curve in curves]

    def drawing(name: str, columns: int, width: float) -> Picture:
        lines = -(-len(panels) // columns)
        height = 3.4 if len(panels) == 1 else 2.7 * lines + 0.3
        sizes: dict[str, Any] = {"height": height, "panels": (lines, columns), "width": width}
        with drawn(legend=everything, share_y=share_y, **sizes) as (figure, grid):
            shown = list(zip(grid.flat, panels.items(), strict=False))
            for axes, (heading, curves) in shown:
                draw_curves(axes, curves)
                for level in levels:
                    axes.axhline(level, color="#555555", linewidth=0.9)
                axes.set_title(heading, fontsize=10 if columns == 1 else 9)
                axes.set_xlabel(across if isinstance(across, str) else across[heading])
            # Only now: a limit set on an axis that panels share would keep later curves out.
            for axes, (heading, curves) in shown:
                dress(axes, heading, [x for curve in curves for x in curve.x])
                if heading in from_zero:
                    axes.set_ylim(bottom=0)
            for axes in grid[:, 0]:
                axes.set_ylabel(up)
            legend_below(figure, *grid.flat)
            axis = " or ".join(dict.fromkeys(axes.get_xlabel() for axes, _ in shown))
            parts = [f"{title}. Across: {axis}. Up: {up}."]
            for heading, curves in panels.items():
                parts += [f"{' '.join(heading.split())}:"] if heading else []
                for curve in curves:
                    if not curve.faint:
                        ends = (f"{Estimate(curve.y[end]).text} at {curve.x[end]:.0f}" for end in (0, -1))
                        parts.append(f"{curve.label}: {', '.join(dict.fromkeys(ends))}.")
            alt = " ".join([*parts, words]).strip()
            return picture(figure, name=name, title=title, alt=alt, caption=caption)

    return in_both_widths(drawing, name, min(columns, len(panels)))
