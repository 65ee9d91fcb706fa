"""Paired differences as dots with intervals: what changed, and whether the interval excludes zero."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from lengthwise.report.drawing import COLORS, MARKERS, Picture, drawn, picture, series_names
from lengthwise.report.tables import Estimate
from lengthwise.results import Row

_LINE = 0.21
"""Inches a line."""


@dataclass(frozen=True)
class _Line:
    place: float
    """From the top, in lines."""
    label: str
    style: int
    row: Row


def paired_differences(
    rows: Sequence[Row],
    *,
    title: str | None = None,
    better: str | None = None,
    series: Sequence[str] = (),
    name: str = "paired-differences",
) -> Picture | None:
    """One line for each arm and length (or distance), grouped by length; a line at 0 is no change.

    Args:
        rows: rows with a `reference`, all of ONE metric (one scale), as `paired_difference` returns them.
        title: the figure's title; default names the metric and the reference.
        better: "lower" or "higher", said on the axis.
        series: names in the order of another figure, whose colours and markers they get.
        name: file name without ending.
    """
    chosen = [r for r in rows if r.reference is not None and r.value is not None and r.position is None]
    if not chosen:
        return None
    metrics = {(r.task, r.metric, r.unit) for r in chosen}
    assert len(metrics) == 1, f"one scale needs one metric, not {sorted(metrics)}"
    [(_, metric, unit)] = metrics
    references = ", ".join(sorted({r.reference for r in chosen if r.reference}))
    title = title or f"Difference of {metric} against {references}"
    lines, headings, bottom = _layout(chosen, series)
    with drawn(height=1.3 + _LINE * bottom) as (figure, grid):
        axes = grid[0][0]
        axes.axvline(0, color="#555555", linewidth=1)
        for line in lines:
            _draw(axes, line)
        for place, heading in headings:
            axes.annotate(
                heading,
                (0, place),
                xycoords=("axes fraction", "data"),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontweight="bold",
                fontsize=9,
            )
        axes.set_yticks([line.place for line in lines], [line.label for line in lines])
        axes.set_ylim(bottom, -0.7)
        axes.grid(visible=False, axis="y")
        direction = f", {better} is better" if better else ""
        axes.set_xlabel(f"difference in {metric} ({_unit(unit)}){direction}")
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. " + " ".join(_words(line) for line in lines),
            caption=f"Against {references} on the same tokens, documents resampled together; bars are 95 % "
            "intervals. A bar that crosses 0 shows no clear change.",
        )


def _layout(rows: Sequence[Row], series: Sequence[str]) -> tuple[list[_Line], list[tuple[float, str]], float]:
    """Lines, headings with their places, and the lower end."""
    names = series_names(rows)
    styles = {name: style for style, name in enumerate(dict.fromkeys([*series, *names]))}
    groups: dict[str, list[tuple[str, Row]]] = {}
    for row, name in zip(rows, names, strict=True):
        groups.setdefault(_group(row), []).append((name, row))
    lines: list[_Line] = []
    headings: list[tuple[float, str]] = []
    place = 0.0
    for heading, members in groups.items():
        headings.append((place, heading))
        for name, row in members:
            place += 1
            label = name if row.seed is None else f"{name}, seed {row.seed}"
            lines.append(_Line(place, label, styles[name], row))
        place += 1.4
    return lines, headings, place - 0.7


def _draw(axes: Axes, line: _Line) -> None:
    color, marker = COLORS[line.style % len(COLORS)], MARKERS[line.style % len(MARKERS)]
    row = line.row
    assert row.value is not None
    if row.ci_low is not None and row.ci_high is not None:
        axes.plot([row.ci_low, row.ci_high], [line.place, line.place], color=color, linewidth=2)
    axes.plot([row.value], [line.place], color=color, marker=marker, markersize=6)


def _group(row: Row) -> str:
    if row.distance is not None:
        return f"distance {row.distance}"
    if row.kept is not None:
        return f"{row.kept} kept"
    if row.length is not None:
        return f"{row.length} tokens"
    return row.metric


def _words(line: _Line) -> str:
    row = line.row
    return f"{_group(row)}, {line.label}: {Estimate(row.value, row.ci_low, row.ci_high, signed=True).text}."


def _unit(unit: str) -> str:
    return "nats per token" if unit == "nats" else unit
