"""One picture of many models: their headline numbers in order, where curves would cover each other."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from lengthwise.report.drawing import COLORS, Picture, drawn, in_both_widths, picture
from lengthwise.report.sentence import score_rows
from lengthwise.report.tables import row_estimate, series_names
from lengthwise.results import Row

MOST_SERIES = 6
"""Curves that can be told apart; more models are ranked."""

RANKED: Mapping[str, Sequence[str]] = {
    "misalignment": ("jeffreys",),
    "perplexity": ("loss",),
    "limit": ("sound_up_to", "used_up_to"),
    "difference": ("difference",),
}
"""Task -> the headline numbers that rank its models. Families of questions have their score."""


def ranking(task: str, rows: Sequence[Row]) -> Picture | None:
    """A panel for each number of `RANKED`, a line for each model and seed, the greatest value first.

    The numbers are those of the greatest length. A number that is not known comes last, without a point.
    """
    rows = [row for row in rows if row.is_headline] if task in RANKED else score_rows(rows)
    metrics = RANKED.get(task, [row.metric for row in rows[:1]])
    panels = {metric: _in_order(metric, rows) for metric in metrics}
    panels = {
        metric: lines for metric, lines in panels.items() if any(row.value is not None for _, row in lines)
    }
    if not panels:
        return None
    words = [
        f"{metric}: " + "; ".join(f"{label} {row_estimate(row).text}" for label, row in lines)
        for metric, lines in panels.items()
    ]

    def drawing(file: str, columns: int, width: float) -> Picture:
        down = -(-len(panels) // columns)
        height = 0.9 + down * (0.6 + 0.24 * max(map(len, panels.values())))
        with drawn(height=height, panels=(down, columns), width=width) as (figure, grid):
            for axes, (metric, lines) in zip(grid.flat, panels.items(), strict=False):
                for place, (_, row) in enumerate(lines):
                    ends = [row.ci_low, row.ci_high]
                    if row.value is None:
                        continue
                    if None not in ends:
                        axes.plot(ends, [place, place], color=COLORS[0], linewidth=1.4, alpha=0.6)
                    axes.plot([row.value], [place], color=COLORS[0], marker=">" if row.at_least else "o")
                labels = [textwrap.shorten(label, 30, placeholder=" ...") for label, _ in lines]
                axes.set_yticks(range(len(lines)), labels)
                axes.set_ylim(len(lines) - 0.5, -0.5)
                first = lines[0][1]
                where = (
                    "" if first.length is None or first.unit == "tokens" else f" at {first.length:,} tokens"
                )
                axes.set_title(f"{metric}{where}", fontsize=9)
                axes.set_xlabel(first.unit)
            return picture(
                figure,
                name=file,
                title="Models, ranked",
                alt=f"Models from the greatest value to the least. {'. '.join(words)}.",
                caption="From the greatest value to the least; bars are 95 % intervals over documents. A triangle "
                "is a lower bound, a line without a point a number that is not known.",
            )

    return in_both_widths(drawing, f"ranking-{task}", len(panels))


def _in_order(metric: str, rows: Sequence[Row]) -> list[tuple[str, Row]]:
    """The rows of the metric at the greatest length, with what names them."""
    ours = [row for row in rows if row.metric == metric and row.depth is None]
    longest = max((row.length or 0 for row in ours), default=0)
    ours = [row for row in ours if (row.length or 0) == longest]
    names = series_names(ours)
    labels = [
        name if row.seed is None else f"{name}, seed {row.seed}"
        for name, row in zip(names, ours, strict=True)
    ]
    unknown = float("-inf")
    return sorted(
        zip(labels, ours, strict=True),
        key=lambda line: -(unknown if line[1].value is None else line[1].value),
    )
