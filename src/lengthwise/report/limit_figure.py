"""The figure of the effective context length: excess loss, disagreement, benefit, and the limits that they give."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from lengthwise.report.drawing import (
    COLORS,
    Picture,
    curves_of,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
    series_names,
    token_axis,
)
from lengthwise.report.tables import Estimate
from lengthwise.results import Row

_PANELS = (
    ("excess", "sound_up_to", "Sound? Loss with all minus\nloss with recent context"),
    ("jeffreys", "sound_up_to", "Disagreement of the two\npredictions"),
    ("benefit", "used_up_to", "Used? Benefit of a\nrepeated passage"),
)


def limit_curves(rows: Sequence[Row], *, name: str = "limit") -> Picture | None:
    """Excess loss and disagreement by context, benefit by distance; vertical lines are the two limits."""
    rows = [row for row in rows if row.task == "limit" and row.reference is None]
    curves = [
        curves_of([r for r in rows if r.metric == metric and _is_point(r)], _limit_x)
        for metric, *_ in _PANELS
    ]
    if not (curves[0] and curves[-1]):
        return None
    title = "Effective context length"
    # An endpoint gives no distributions to disagree.
    panels = [(lines, about) for lines, about in zip(curves, _PANELS, strict=True) if lines]
    with drawn(height=3.3, panels=(1, len(panels)), legend=curves[0]) as (figure, grid):
        for axes, (lines, (metric, limit, heading)) in zip(grid[0], panels, strict=True):
            draw_curves(axes, lines)
            across = [x for line in lines for x in line.x]
            if metric == "benefit":
                doubling_axis(axes, _two_doublings_apart(across))
            else:
                token_axis(axes, across, ticks=4)
            axes.axhline(0, color="#555555", linewidth=0.9)
            _draw_limits(axes, rows, limit)
            axes.set_title(heading, fontsize=9)
            axes.set(xlabel="distance (tokens)" if metric == "benefit" else "context (tokens)")
        _draw_level(grid[0][0], rows, "tolerance")
        _draw_level(grid[0][-1], rows, "used_level")
        grid[0][0].set_ylabel("nats per token")
        legend_below(figure, grid[0][0])
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. {_limit_words(rows)}",
            caption="Vertical lines are the limits, the shade around them their 95 % intervals (bootstrap over "
            "documents); a dotted line is a lower bound, where the measurement ended without finding the limit. "
            "Horizontal dashed lines are the levels that define the limits: the tolerated excess, and the share of "
            "the benefit nearby.",
        )


def _two_doublings_apart(values: Sequence[float]) -> list[float]:
    """Ticks that a narrow panel has room for."""
    kept: list[float] = []
    for value in sorted(set(values)):
        if not kept or value >= 4 * kept[-1]:
            kept.append(value)
    return kept


def _is_point(row: Row) -> bool:
    return row.position is not None or row.distance is not None


def _limit_x(row: Row) -> float:
    if row.distance is not None:
        return row.distance
    assert row.position is not None
    assert row.position_end is not None
    return (row.position + row.position_end) / 2


def _limit_numbers(rows: Sequence[Row], metric: str) -> list[tuple[str, str, Row]]:
    """The color, name and row of each model that has this number. Colors are those of its curves."""
    plain = [row for row in rows if row.metric == metric and not _is_point(row)]
    return [
        (COLORS[style % len(COLORS)], name, row)
        for style, (name, row) in enumerate(zip(series_names(plain), plain, strict=True))
        if row.value is not None
    ]


def _draw_limits(axes: Axes, rows: Sequence[Row], metric: str) -> None:
    for color, _, row in _limit_numbers(rows, metric):
        assert row.value is not None
        axes.axvline(row.value, color=color, linewidth=1.1, linestyle=":" if row.at_least else "-")
        if row.ci_low is not None and row.ci_high is not None and row.ci_high > row.ci_low:
            axes.axvspan(
                max(row.ci_low, axes.get_xlim()[0]), row.ci_high, color=color, alpha=0.08, linewidth=0
            )


def _draw_level(axes: Axes, rows: Sequence[Row], metric: str) -> None:
    for color, _, row in _limit_numbers(rows, metric):
        assert row.value is not None
        axes.axhline(row.value, color=color, linewidth=0.9, linestyle="--")


def _limit_text(row: Row) -> str:
    return Estimate(row.value, row.ci_low, row.ci_high, at_least=bool(row.at_least)).text


def _limit_words(rows: Sequence[Row]) -> str:
    return " ".join(
        f"{name}: {what} {_limit_text(row)} tokens."
        for metric, what in (("sound_up_to", "sound up to"), ("used_up_to", "used up to"))
        for _, name, row in _limit_numbers(rows, metric)
    )
