"""The figures of each task that are made of curves.

A function takes rows of one or several models, arms and seeds, picks those it draws, and returns a `Picture`, or None
where there is nothing to draw. Bands are 95 % intervals.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lengthwise.errors import UsageError, require_known
from lengthwise.report import drawing
from lengthwise.report.comparison_curve import benefits_by_distance
from lengthwise.report.drawing import Curve, Picture, curve_picture, curves_of
from lengthwise.report.heatmaps import misalignment_matrix, score_by_depth
from lengthwise.report.ranking import MOST_SERIES, ranking
from lengthwise.report.tables import in_order, questions, row_estimate, series_names, tasks_in_order
from lengthwise.results import Results, Row

BANDS = "Bands or bars are 95 % intervals over documents."
NATS = "nats per token"


def misalignment_parts(rows: Sequence[Row]) -> Picture | None:
    """The two parts of SCE by length, each on its own scale: entropy beside disagreement."""
    sharpness, disagreement = "Sharpness: entropy part", "Disagreement: Jeffreys part"
    return _by_number(
        rows,
        "misalignment",
        {sharpness: "entropy", disagreement: "jeffreys"},
        name="misalignment-parts",
        title="What SCE is made of, by length",
        across="longest context L (tokens)",
        up=NATS,
        caption="SCE is the sum of both panels, H(p) + H(q) and KL(p||q) + KL(q||p); note the different "
        f"scales. Only the Jeffreys part is about agreement of the two contexts. {BANDS}",
        share_y=False,
        from_zero=[disagreement],
    )


def jeffreys_by_position(rows: Sequence[Row]) -> Picture | None:
    """Disagreement of the two contexts by position in the shorter one, for each model and length."""
    return _by_position(
        rows,
        "misalignment",
        "jeffreys",
        from_zero=True,
        name="jeffreys-by-position",
        title="Disagreement by position",
        up="Jeffreys (nats per token)",
        caption=f"0 means that the cut-off context changes nothing. {BANDS}",
    )


def loss_by_length(rows: Sequence[Row]) -> Picture | None:
    """Cross entropy of the same targets at each length."""
    return _by_number(
        rows,
        "perplexity",
        {"": "loss"},
        name="loss-by-length",
        title="Loss by context length",
        across="context length (tokens)",
        up="cross entropy (nats per token)",
        caption=f"The same target tokens at every length; lower is better. {BANDS}",
    )


def loss_by_position(rows: Sequence[Row], *, name: str = "loss-by-position") -> Picture | None:
    """Cross entropy by position in the window, for each model and length."""
    return _by_position(
        rows,
        "perplexity",
        "loss",
        name=name,
        title="Loss by position in the window",
        up="cross entropy (nats per token)",
        caption=f"A rise towards the end of a window means that more context makes predictions worse. {BANDS}",
    )


def limit_curves(rows: Sequence[Row], *, name: str = "limit") -> Picture | None:
    """Excess loss by context, benefit by distance; vertical lines are the two limits."""
    rows = [row for row in rows if row.task == "limit" and row.reference is None]
    names = series_names(rows)
    colors = {label: drawing.COLORS[i % len(drawing.COLORS)] for i, label in enumerate(dict.fromkeys(names))}
    # The color and name of each model that has a number, with its row.
    numbers: dict[str, list[tuple[str, str, Row]]] = defaultdict(list)
    points: dict[str, list[Row]] = defaultdict(list)
    for label, row in zip(names, rows, strict=True):
        if row.position is not None or row.distance is not None:
            points[row.metric].append(row)
        elif row.value is not None:
            numbers[row.metric].append((colors[label], label, row))
    if "excess" not in points:
        return None
    excess = "Sound? Loss with all minus\nloss with recent context"
    benefit = "Used? Benefit of a\nrepeated passage"
    panels = {excess: "excess", benefit: "benefit"}
    limits = {"sound up to": numbers["sound_up_to"], "used up to": numbers["used_up_to"]}

    def dress(axes: Axes, heading: str, places: Sequence[float]) -> None:
        if heading == benefit:
            drawing.doubling_axis(axes, places, apart=4)
        else:
            drawing.token_axis(axes, places, ticks=4)
        for color, _, row in limits["used up to" if heading == benefit else "sound up to"]:
            axes.axvline(row.value or 0, color=color, linewidth=1.1, linestyle=":" if row.at_least else "-")
            if row.ci_low is not None and row.ci_high is not None and row.ci_high > row.ci_low:
                left = max(row.ci_low, axes.get_xlim()[0])
                axes.axvspan(left, row.ci_high, color=color, alpha=0.08, linewidth=0)
        for color, _, row in numbers[{excess: "tolerance", benefit: "used_level"}.get(heading, "")]:
            _level(axes, row, color)

    return curve_picture(
        {heading: curves_of(points[metric], _place, series=names) for heading, metric in panels.items()},
        name=name,
        title="Effective context length",
        across={excess: "context (tokens)", benefit: "distance (tokens)"},
        up=NATS,
        caption="Vertical lines are the limits, the shade around them their 95 % intervals over "
        "documents; a dotted line is a lower bound, where the measurement ended without finding the limit. "
        "Horizontal dashed lines are the levels that define the limits: the tolerated excess, and the share of "
        "the benefit nearby.",
        words=" ".join(
            f"{label}: {what} {row_estimate(row).text} tokens."
            for what, found in limits.items()
            for _, label, row in found
        ),
        share_y=False,
        levels=[0],
        dress=dress,
    )


def differences_by_position(rows: Sequence[Row], *, name: str = "difference-by-position") -> Picture | None:
    """The mean absolute difference of two sides by position, and the benefit of repeated passages on both."""
    bins = [row for row in rows if row.position is not None and row.metric == "difference"]
    if all(row.position for row in bins):
        # Decoded ends of windows: one bin for each length.
        difference = curves_of(bins, attrgetter("position_end"), series=series_names(bins))
    else:
        difference = _by_length(bins)
    sides = [replace(row, model=f"benefit to {row.metric[-1].upper()}") for row in benefits_by_distance(rows)]
    if not difference:
        return None
    apart, used = "How far apart? Mean |difference|", "Is far context used? Benefit"

    def dress(axes: Axes, heading: str, x: Sequence[float]) -> None:
        ticks = [place for place in (16 * 4**step for step in range(12)) if place <= max(x)]
        drawing.doubling_axis(axes, ticks if heading == apart and len(x) > 8 else x)
        for row in rows:
            if heading == apart and row.metric == "tolerance" and row.value is not None:
                _level(axes, row, "#555555")

    return curve_picture(
        {
            apart: difference,
            used: curves_of(sides, attrgetter("distance"), series=[curve.label for curve in difference]),
        },
        name=name,
        title="B against A, by position and by distance",
        across={apart: "position (tokens)", used: "distance (tokens)"},
        up=NATS,
        caption="How far apart: 0 is equal, the dashed line the tolerance. Used: what a "
        f"repeated passage is worth to each side. {BANDS}",
        share_y=False,
        levels=[0],
        dress=dress,
    )


def training_curves(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Picture | None:
    """Cross entropy, entropy and Jeffreys by step, one colour for each run; `runs` maps labels to records.

    A run of more than 40 steps is drawn as the mean over the last 5 % of its steps before each step.
    """
    parts = {"Cross entropy": "cross_entropy", "Entropy part": "entropy", "Jeffreys part": "jeffreys"}
    panels: dict[str, list[Curve]] = {heading: [] for heading in parts}
    for heading, key in parts.items():
        for style, (label, records) in enumerate(runs.items()):
            values = {record["step"]: float(record[key]) for record in records if record.get(key) is not None}
            values = {step: value for step, value in values.items() if math.isfinite(value)}
            y = list(values.values())
            width = len(y) // 20 if len(y) > 40 else 1
            smooth = [sum(y[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(y))]
            if y:
                panels[heading].append(Curve(label=label, x=list(values), y=smooth, style=style))
    return curve_picture(
        panels,
        name="training-curves",
        title="Training, step by step",
        across="step",
        up=NATS,
        caption="Each step sees other text, so single steps scatter; note the scale of each panel. "
        "SCE is the sum of the entropy part (sharpness) and the Jeffreys part (disagreement).",
        share_y=False,
        dress=lambda axes, *_: axes.xaxis.set_major_locator(MaxNLocator(6, integer=True)),
    )


FIGURES: Mapping[str, Sequence[Callable[[Sequence[Row]], Picture | None]]] = {
    "misalignment": (misalignment_parts, jeffreys_by_position, misalignment_matrix),
    "perplexity": (loss_by_length, loss_by_position),
    "limit": (limit_curves,),
    "difference": (differences_by_position,),
}
"""Task -> the figures of its rows."""


def figures_of(task: str, rows: Sequence[Row]) -> list[Picture]:
    """The figures of a task that its rows can fill; other tasks than those of `questions` are of an evaluation.

    Of more models than curves can be told apart, their ranking alone.
    """
    if len({*series_names(rows)}) > MOST_SERIES and (ranked := ranking(task, rows)) is not None:
        return [ranked]
    draws = FIGURES.get(task, () if task in questions() else (score_by_depth,))
    return [picture for draw in draws if (picture := draw(rows)) is not None]


def picture_of(results: Results, name: str | None) -> Figure:
    """See `Results.picture`."""
    pictures = {
        drawn.name: drawn.figure
        for task in tasks_in_order(row.task for row in results.rows)
        for drawn in figures_of(task, in_order([row for row in results.rows if row.task == task]))
    }
    if not pictures:
        raise UsageError(f"a run of {results.kind!r} with these rows has no picture")
    name = next(iter(pictures)) if name is None else name
    require_known(name, pictures, "there is no picture")
    return pictures[name]


def _by_number(rows: Sequence[Row], task: str, panels: Mapping[str, str], **about: Any) -> Picture | None:
    """Headline numbers by length; `panels`: heading -> metric, all of them needed."""
    chosen = [row for row in rows if row.task == task and row.is_headline and row.length]
    curves = {
        heading: curves_of([row for row in chosen if row.metric == metric], attrgetter("length"))
        for heading, metric in panels.items()
    }
    return curve_picture(curves, **about) if all(curves.values()) else None


def _by_position(
    rows: Sequence[Row], task: str, metric: str, *, from_zero: bool = False, **about: Any
) -> Picture | None:
    """A number by position. One model: one panel, a curve for each length. Several: a panel for each length."""
    rows = [row for row in rows if (row.task, row.metric, row.reference) == (task, metric, None)]
    rows = [row for row in rows if row.position is not None]
    names = series_names(rows)
    panels = {
        f"{length} tokens": curves_of([row for row in rows if row.length == length], _place, series=names)
        for length in _lengths(rows)
    }
    if all(len(curves) == 1 for curves in panels.values()):
        panels = {"": _by_length(rows)}
    return curve_picture(
        panels,
        across="position (tokens)",
        from_zero=list(panels) if from_zero else (),
        dress=lambda axes, _, positions: drawing.token_axis(
            axes, positions, ticks=8 if len(panels) == 1 else 4
        ),
        **about,
    )


def _by_length(rows: Sequence[Row]) -> list[Curve]:
    """A curve by position for each length, each length with its own style."""
    several = len({row.model for row in rows}) > 1
    return [
        replace(
            curve, label=f"{curve.label}, {length} tokens" if several else f"{length} tokens", style=style
        )
        for style, length in enumerate(_lengths(rows))
        for curve in curves_of([row for row in rows if row.length == length], _place)
    ]


def _lengths(rows: Sequence[Row]) -> list[int]:
    return sorted({row.length for row in rows if row.length is not None})


def _place(row: Row) -> float:
    """The distance, or the middle of the bin of positions."""
    return (
        row.distance if row.distance is not None else ((row.position or 0) + (row.position_end or 0) - 1) / 2
    )


def _level(axes: Axes, row: Row, color: str) -> None:
    axes.axhline(row.value or 0, color=color, linewidth=0.9, linestyle="--")
