"""The figures of each task.

A function takes rows of one or several models, arms and seeds, picks those it draws, and returns a `Picture`, or None
where there is nothing to draw. Bands are 95 % intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lengthwise.measure.influence import METHODS
from lengthwise.measure.served import verdict
from lengthwise.report.drawing import (
    Curve,
    Panel,
    Picture,
    curve_picture,
    curves_of,
    doubling_axis,
    token_axis,
)
from lengthwise.report.heatmaps import misalignment_matrix, score_by_depth
from lengthwise.report.limit_figure import draw_limits, limit_curves
from lengthwise.report.row_tables import displays, series_names
from lengthwise.results import Row

BANDS = "Bands or bars are 95 % intervals (bootstrap over documents)."
NATS = "nats per token"


def misalignment_parts(rows: Sequence[Row], *, name: str = "misalignment-parts") -> Picture | None:
    """The two parts of SCE by length, each on its own scale: entropy beside disagreement."""
    whole = [row for row in rows if row.is_headline and row.length]
    entropy, jeffreys = (
        curves_of(_of(whole, "misalignment", metric), lambda row: row.length or 0)
        for metric in ("entropy", "jeffreys")
    )
    if not (entropy and jeffreys):
        return None
    across = "longest context L (tokens)"
    return curve_picture(
        [
            Panel(curves=entropy, across=across, heading="Sharpness: entropy part"),
            Panel(curves=jeffreys, across=across, heading="Disagreement: Jeffreys part", more=_from_zero),
        ],
        name=name,
        title="What SCE is made of, by length",
        up=NATS,
        caption="SCE is the sum of both panels, H(p) + H(q) and KL(p||q) + KL(q||p); note the different "
        f"scales. Only the right panel is about agreement of the two contexts. {BANDS}",
        share_y=False,
    )


def jeffreys_by_position(rows: Sequence[Row], *, name: str = "jeffreys-by-position") -> Picture | None:
    """Disagreement of the two contexts by position in the shorter one, for each model and length."""
    return curve_picture(
        _by_position(_of(rows, "misalignment", "jeffreys"), more=_from_zero),
        name=name,
        title="Disagreement by position",
        up="Jeffreys (nats per token)",
        caption=f"0 means that the cut-off context changes nothing. {BANDS}",
    )


def loss_by_length(rows: Sequence[Row], *, name: str = "loss-by-length") -> Picture | None:
    """Cross entropy of the same targets at each length."""
    chosen = [row for row in _of(rows, "perplexity", "loss") if row.position is None and row.length]
    return curve_picture(
        [Panel(curves=curves_of(chosen, lambda row: row.length or 0), across="context length (tokens)")],
        name=name,
        title="Loss by context length",
        up="cross entropy (nats per token)",
        caption=f"The same target tokens at every length; lower is better. {BANDS}",
    )


def loss_by_position(rows: Sequence[Row], *, name: str = "loss-by-position") -> Picture | None:
    """Cross entropy by position in the window, for each model and length."""
    return curve_picture(
        _by_position(_of(rows, "perplexity", "loss")),
        name=name,
        title="Loss by position in the window",
        up="cross entropy (nats per token)",
        caption=f"A rise towards the end of a window means that more context makes predictions worse. {BANDS}",
    )


def recall_by_distance(rows: Sequence[Row], *, name: str = "recall-by-distance") -> Picture | None:
    """What a repeated passage is worth to the model, by how far back it is."""
    chosen = [row for row in _of(rows, "recall", "benefit") if row.distance]
    curves = curves_of(chosen, lambda row: row.distance or 0)
    return curve_picture(
        [Panel(curves=curves, across="distance to the first occurrence (tokens)", levels=[0])],
        name=name,
        title="Benefit of a repeated passage by its distance",
        up="benefit (nats per token)",
        caption="Loss after a different passage minus loss after the same passage: "
        f"0 means that the model does not use text that far back. {BANDS}",
    )


def recovered_by_kept(rows: Sequence[Row], *, name: str = "recovered-by-kept") -> Picture | None:
    """The share of the gain that k distant tokens recover, by who chose them; a panel for each model."""
    methods = {f"recovered_{method}": method.replace("_", " ") for method in METHODS}
    chosen = [row for row in rows if row.kept is not None and row.reference is None and row.metric in methods]
    by_series: dict[str, list[Row]] = {}
    for row, series in zip(chosen, series_names(chosen), strict=True):
        by_series.setdefault(series, []).append(replace(row, arm=methods[row.metric], model=""))
    return curve_picture(
        [
            Panel(
                curves=curves_of(ours, lambda row: row.kept or 0),
                across="distant tokens kept, k",
                heading=series if len(by_series) > 1 else "",
                levels=[0, 1],
            )
            for series, ours in by_series.items()
        ],
        name=name,
        title="What a few distant tokens recover",
        up="share of the gain",
        caption="1 is all of the gain from long context, 0 what the near tokens give. Bars are 95 % intervals "
        "over documents. `greedy foreign` is the same choice from another text: what choosing alone is worth.",
        columns=2,
    )


def differences_by_position(rows: Sequence[Row], *, name: str = "served-by-position") -> Picture | None:
    """The mean absolute difference of a served model and the shift of its loss by position, for each length."""
    difference, shift = (_by_length(rows, metric) for metric in ("difference", "shift"))
    if not (difference and shift):
        return None
    ticks = [place for place in (16 * 4**step for step in range(12)) if place <= difference[-1].x[-1]]
    tolerances = [("#555555", "", row) for row in rows if row.metric == "tolerance" and row.value is not None]
    headings = "How far apart? Mean |difference|", "Which is better? Served - checkpoint"
    left, right = (
        Panel(
            curves=curves,
            across="position (tokens)",
            heading=heading,
            axis=lambda axes, _: doubling_axis(axes, ticks),
            levels=[0],
        )
        for curves, heading in zip((difference, shift), headings, strict=True)
    )
    return curve_picture(
        [replace(left, more=partial(draw_limits, limits=[], levels=tolerances)), right],
        name=name,
        title="Served model against its checkpoint, by position",
        up=NATS,
        caption=" ".join(verdict(rows))
        + " The same tokens, read by the server and by the checkpoint. 0 on the "
        "left is an equal model, the dashed line the tolerance; above 0 on the right the served model predicts "
        f"worse. {BANDS}",
        share_y=False,
    )


def training_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, name: str = "training-curves"
) -> Picture | None:
    """Cross entropy, entropy and Jeffreys by step, one colour for each run; `runs` maps labels to records.

    A run of more than 40 steps is drawn as the mean over the last 5 % of its steps before each step.
    """
    parts = {"cross_entropy": "Cross entropy", "entropy": "Entropy part", "jeffreys": "Jeffreys part"}
    return curve_picture(
        [
            Panel(
                curves=[
                    curve
                    for style, (label, records) in enumerate(runs.items())
                    if (curve := _training_curve(label, records, key, style)) is not None
                ],
                across="step",
                heading=heading,
                axis=lambda axes, _: axes.xaxis.set_major_locator(MaxNLocator(6, integer=True)),
            )
            for key, heading in parts.items()
        ],
        name=name,
        title="Training, step by step",
        up=NATS,
        caption="Each step sees other text, so single steps scatter; note the scale of each panel. "
        "SCE is the sum of the entropy part (sharpness) and the Jeffreys part (disagreement).",
        share_y=False,
    )


FIGURES: Mapping[str, Sequence[Callable[[Sequence[Row]], Picture | None]]] = {
    "misalignment": (misalignment_parts, jeffreys_by_position, misalignment_matrix),
    "perplexity": (loss_by_length, loss_by_position),
    "recall": (recall_by_distance,),
    "limit": (limit_curves,),
    "influence": (recovered_by_kept,),
    "served": (differences_by_position,),
}
"""Task -> the figures of its rows."""


def figures_of(task: str, rows: Sequence[Row]) -> list[Picture]:
    """The figures of a task that its rows can fill; a task without a display is one of an evaluation."""
    draws = FIGURES.get(task, () if task in displays() else (score_by_depth,))
    return [picture for draw in draws if (picture := draw(rows)) is not None]


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(bottom=0)


def _of(rows: Sequence[Row], task: str, metric: str) -> list[Row]:
    """Rows of one metric that are no difference and no pair of lengths."""
    return [
        row
        for row in rows
        if (row.task, row.metric) == (task, metric) and row.reference is None and row.context_other is None
    ]


def _by_position(rows: Sequence[Row], **how: Any) -> list[Panel]:
    """One model: one panel, a curve for each length. Several: a panel for each length, a curve each."""
    across = "position (tokens)"
    rows = [row for row in rows if row.position is not None]
    by_length = {
        length: curves_of([row for row in rows if row.length == length], _middle, series=series_names(rows))
        for length in _lengths(rows)
    }
    if all(len(curves) == 1 for curves in by_length.values()):
        axis = partial(token_axis, ticks=8)
        return [Panel(curves=_by_length(rows, None), across=across, axis=axis, **how)]
    axis = partial(token_axis, ticks=8 if len(by_length) == 1 else 4)
    return [
        Panel(curves=curves, across=across, heading=f"{length} tokens", axis=axis, **how)
        for length, curves in by_length.items()
    ]


def _by_length(rows: Sequence[Row], metric: str | None) -> list[Curve]:
    """A curve by position for each length, of one metric if it is named, each length with its own style."""
    chosen = [row for row in rows if row.position is not None and metric in (None, row.metric)]
    several = len({row.model for row in rows}) > 1
    return [
        replace(
            curve, label=f"{curve.label}, {length} tokens" if several else f"{length} tokens", style=style
        )
        for style, length in enumerate(_lengths(chosen))
        for curve in curves_of([row for row in chosen if row.length == length], _middle)
    ]


def _lengths(rows: Sequence[Row]) -> list[int]:
    return sorted({row.length for row in rows if row.length is not None})


def _middle(row: Row) -> float:
    return ((row.position or 0) + (row.position_end or 0) - 1) / 2


def _training_curve(label: str, records: Sequence[Mapping[str, Any]], key: str, style: int) -> Curve | None:
    values = {record["step"]: record[key] for record in records if isinstance(record.get(key), (int, float))}
    y = [float(value) for value in values.values() if math.isfinite(value)]
    if not y:
        return None
    width = len(y) // 20 if len(y) > 40 else 1
    smooth = [sum(y[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(y))]
    steps = [step for step, value in values.items() if math.isfinite(value)]
    return Curve(label=label, x=steps, y=smooth, style=style)
