"""Paired differences as dots with intervals: what changed, and whether the interval excludes zero."""

from __future__ import annotations

from collections.abc import Sequence

from lengthwise.report.drawing import COLORS, MARKERS, Picture, drawn, picture
from lengthwise.report.tables import row_estimate, series_names
from lengthwise.results import Row

_LINE = 0.21
"""Inches a line."""
_GAP = 0.4
"""Lines between two groups."""


def paired_differences(
    rows: Sequence[Row],
    *,
    better: str,
    series: Sequence[str] = (),
    name: str = "paired-differences",
) -> Picture | None:
    """One line for each arm and length (or distance), grouped by length; a line at 0 is no change.

    Args:
        rows: rows with a `reference`, all of ONE metric (one scale), as `paired_difference` returns them.
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
    title = f"Difference of {metric} against {references}"
    names = series_names(chosen)
    styles = {label: style for style, label in enumerate(dict.fromkeys([*series, *names]))}
    groups: dict[str, list[tuple[str, Row]]] = {}
    for row, label in zip(chosen, names, strict=True):
        groups.setdefault(_group(row), []).append((label, row))
    height = len(chosen) + len(groups) * (1 + _GAP) - 0.7
    words, ticks = [], {}
    with drawn(height=1.3 + _LINE * height) as (figure, grid):
        axes = grid[0][0]
        axes.axvline(0, color="#555555", linewidth=1)
        place = 0.0
        for heading, members in groups.items():
            side = axes.get_yaxis_transform()
            axes.text(0.01, place, heading, transform=side, va="center", fontweight="bold", fontsize=9)
            for label, row in members:
                place += 1
                color, marker = (looks[styles[label] % len(looks)] for looks in (COLORS, MARKERS))
                if row.ci_low is not None:
                    axes.plot([row.ci_low, row.ci_high], [place, place], color=color, linewidth=2)
                axes.plot([row.value], [place], color=color, marker=marker, markersize=6)
                ticks[place] = label if row.seed is None else f"{label}, seed {row.seed}"
                words.append(f"{heading}, {ticks[place]}: {row_estimate(row).text}.")
            place += 1 + _GAP
        axes.set_yticks(list(ticks), list(ticks.values()))
        axes.set_ylim(height, -0.7)
        axes.grid(visible=False, axis="y")
        scale = "nats per token" if unit == "nats" else unit
        axes.set_xlabel(f"difference in {metric} ({scale}), {better} is better")
        return picture(
            figure,
            name=name,
            title=title,
            alt=" ".join([f"{title}.", *words]),
            caption=f"Against {references} on the same tokens, documents resampled together; bars are 95 % "
            "intervals. A bar that crosses 0 shows no clear change.",
        )


def _group(row: Row) -> str:
    places = {"distance {}": row.distance, "{} kept": row.kept, "{} tokens": row.length}
    return next((text.format(at) for text, at in places.items() if at is not None), row.metric)
