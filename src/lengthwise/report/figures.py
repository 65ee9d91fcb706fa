"""Figures of curves: losses by length, position and step, recall by distance; `limit_curves` has its own file.

A function takes rows of one or several models, arms and seeds, picks those it draws, and returns a
`Picture`, or None where there is nothing to draw. Bands are 95 % intervals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from matplotlib.ticker import MaxNLocator

from lengthwise.report.drawing import (
    Curve,
    Picture,
    curves_of,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
    token_axis,
)
from lengthwise.report.limit_figure import limit_curves as limit_curves
from lengthwise.report.tables import Estimate
from lengthwise.results import Row

BANDS = "Bands or bars are 95 % intervals (bootstrap over documents)."
_TRAINING_PANELS = (
    ("cross_entropy", "Cross entropy"),
    ("entropy", "Entropy part"),
    ("jeffreys", "Jeffreys part"),
)


def loss_by_length(
    rows: Sequence[Row], *, metric: str = "loss", name: str = "loss-by-length"
) -> Picture | None:
    """Cross entropy (or `perplexity`, `loss_best_temperature`) of the same targets at each length."""
    chosen = [r for r in _plain(rows, "perplexity", metric) if r.position is None and r.length]
    titles = {
        "loss": ("Loss by context length", "cross entropy (nats per token)"),
        "perplexity": ("Perplexity by context length", "perplexity"),
        "loss_best_temperature": (
            "Loss at the best temperature by context length",
            "cross entropy at the best temperature (nats per token)",
        ),
    }
    title, y_label = titles[metric]
    return _panels(
        [("", curves_of(chosen, lambda row: row.length or 0))],
        name=name,
        title=title,
        x_label="context length (tokens)",
        y_label=y_label,
        caption=f"The same target tokens at every length; lower is better. {BANDS}",
        doubling=True,
    )


def loss_by_position(rows: Sequence[Row], *, name: str = "loss-by-position") -> Picture | None:
    """Cross entropy by position in the window, for each model and length."""
    return _by_position(
        _plain(rows, "perplexity", "loss"),
        name=name,
        title="Loss by position in the window",
        y_label="cross entropy (nats per token)",
        caption=f"A rise towards the end of a window means that more context makes predictions worse. {BANDS}",
    )


def jeffreys_by_position(rows: Sequence[Row], *, name: str = "jeffreys-by-position") -> Picture | None:
    """Disagreement of the two contexts by position in the shorter one, for each model and length."""
    return _by_position(
        _plain(rows, "misalignment", "jeffreys"),
        name=name,
        title="Disagreement by position",
        y_label="Jeffreys (nats per token)",
        caption=f"0 means that the cut-off context changes nothing. {BANDS}",
        from_zero=True,
    )


def recall_by_distance(rows: Sequence[Row], *, name: str = "recall-by-distance") -> Picture | None:
    """What a repeated passage is worth to the model, by how far back it is."""
    chosen = [r for r in _plain(rows, "recall", "benefit") if r.distance]
    return _panels(
        [("", curves_of(chosen, lambda row: row.distance or 0))],
        name=name,
        title="Benefit of a repeated passage by its distance",
        x_label="distance to the first occurrence (tokens)",
        y_label="benefit (nats per token)",
        caption="Loss after a different passage minus loss after the same passage: "
        f"0 means that the model does not use text that far back. {BANDS}",
        doubling=True,
        zero_line=True,
    )


def misalignment_parts(rows: Sequence[Row], *, name: str = "misalignment-parts") -> Picture | None:
    """The two parts of SCE by length, each on its own scale: entropy beside disagreement."""
    chosen = [r for r in rows if r.task == "misalignment" and r.reference is None and r.length]
    chosen = [r for r in chosen if r.position is None and r.context_other is None]
    panels = [
        ("entropy", "Sharpness: entropy part"),
        ("jeffreys", "Disagreement: Jeffreys part"),
    ]
    curves = [
        curves_of([r for r in chosen if r.metric == metric], lambda row: row.length or 0)
        for metric, _ in panels
    ]
    if not all(curves):
        return None
    title = "What SCE is made of, by length"
    with drawn(height=3.2, panels=(1, 2), legend=curves[0]) as (figure, grid):
        for axes, lines, (_, panel_title) in zip(grid[0], curves, panels, strict=True):
            draw_curves(axes, lines)
            doubling_axis(axes, [x for line in lines for x in line.x])
            axes.set(title=panel_title, xlabel="longest context L (tokens)", ylabel="nats per token")
        grid[0][1].set_ylim(bottom=0)
        legend_below(figure, grid[0][0])
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. "
            + " ".join(
                f"{panel_title}: {_describe(lines)}"
                for lines, (_, panel_title) in zip(curves, panels, strict=True)
            ),
            caption="SCE is the sum of both panels, H(p) + H(q) and KL(p||q) + KL(q||p); note the different "
            f"scales. Only the right panel is about agreement of the two contexts. {BANDS}",
        )


def training_curves(
    runs: Mapping[str, Sequence[Mapping[str, Any]]], *, name: str = "training-curves"
) -> Picture | None:
    """Cross entropy, entropy and Jeffreys by step, one colour for each run; `runs` maps labels to records.

    A run of more than 40 steps is drawn as the mean over the last 5 % of its steps before each step.
    """
    panels = [
        (
            title,
            [
                curve
                for style, (label, records) in enumerate(runs.items())
                if (curve := _training_curve(label, records, key, style)) is not None
            ],
        )
        for key, title in _TRAINING_PANELS
    ]
    panels = [(title, curves) for title, curves in panels if curves]
    if not panels:
        return None
    title = "Training, step by step"
    with drawn(height=2.9, panels=(1, len(panels)), legend=panels[0][1]) as (figure, grid):
        for axes, (panel_title, curves) in zip(grid[0], panels, strict=True):
            draw_curves(axes, curves)
            axes.set(title=panel_title, xlabel="step")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        grid[0][0].set_ylabel("nats per token")
        legend_below(figure, grid[0][0])
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. "
            + " ".join(f"{panel_title}: {_describe(curves)}" for panel_title, curves in panels),
            caption="Each step sees other text, so single steps scatter; note the scale of each panel. "
            "SCE is the sum of the entropy part (sharpness) and the Jeffreys part (disagreement).",
        )


def _describe(curves: Sequence[Curve]) -> str:
    """The ends of each curve in words, for readers who cannot see the figure."""
    parts = []
    for curve in curves:
        if curve.faint:
            continue
        first, last = Estimate(curve.y[0]).text, Estimate(curve.y[-1]).text
        if len(curve.x) == 1:
            parts.append(f"{curve.label}: {first} at {curve.x[0]:.0f}.")
        else:
            parts.append(f"{curve.label}: {first} at {curve.x[0]:.0f}, {last} at {curve.x[-1]:.0f}.")
    return " ".join(parts)


def _plain(rows: Sequence[Row], task: str, metric: str) -> list[Row]:
    """Rows of one metric that are no difference and no pair of lengths."""
    return [
        r
        for r in rows
        if r.task == task and r.metric == metric and r.reference is None and r.context_other is None
    ]


def _middle(row: Row) -> float:
    assert row.position is not None
    assert row.position_end is not None
    return (row.position + row.position_end - 1) / 2


def _by_position(
    rows: Sequence[Row], *, name: str, title: str, y_label: str, caption: str, from_zero: bool = False
) -> Picture | None:
    """One model: one panel, a curve for each length. Several: a panel for each length, a curve each."""
    rows = [r for r in rows if r.position is not None and r.position_end is not None and r.length is not None]
    by_length = {
        length: curves_of([r for r in rows if r.length == length], _middle)
        for length in sorted({r.length for r in rows if r.length is not None})
    }
    if not any(by_length.values()):
        return None
    panels: list[tuple[str, list[Curve]]]
    if max(len(curves) for curves in by_length.values()) == 1:
        together = [
            replace(curve, label=f"{length} tokens", style=style)
            for style, (length, curves) in enumerate(by_length.items())
            for curve in curves
        ]
        panels = [("", together)]
    else:
        panels = [(f"{length} tokens", curves) for length, curves in by_length.items()]
    return _panels(
        panels,
        name=name,
        title=title,
        x_label="position (tokens)",
        y_label=y_label,
        caption=caption,
        from_zero=from_zero,
    )


def _panels(
    panels: Sequence[tuple[str, Sequence[Curve]]],
    *,
    name: str,
    title: str,
    x_label: str,
    y_label: str,
    caption: str,
    doubling: bool = False,
    from_zero: bool = False,
    zero_line: bool = False,
) -> Picture | None:
    """Panels in rows of three that share the vertical scale, one legend; None when all are empty."""
    panels = [(heading, curves) for heading, curves in panels if curves]
    if not panels:
        return None
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    height = 3.4 if len(panels) == 1 else 2.7 * lines + 0.3
    with drawn(height=height, panels=(lines, columns), legend=panels[0][1], share_y=True) as (figure, grid):
        for axes in grid.flat[len(panels) :]:
            axes.set_visible(False)
        for axes, (heading, curves) in zip(grid.flat, panels, strict=False):
            draw_curves(axes, curves)
            across = [x for curve in curves for x in curve.x]
            if doubling:
                doubling_axis(axes, across)
            else:
                token_axis(axes, across, ticks=8 if columns == 1 else 4)
            if zero_line:
                axes.axhline(0, color="#555555", linewidth=0.9)
            axes.set(title=heading, xlabel=x_label)
        if from_zero:
            grid[0][0].set_ylim(bottom=0)
        for axes in grid[:, 0]:
            axes.set_ylabel(y_label)
        legend_below(figure, grid[0][0])
        words = " ".join(f"{heading}: {_describe(curves)}".removeprefix(": ") for heading, curves in panels)
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. Across: {x_label}. Up: {y_label}. {words}",
            caption=caption,
        )


def _training_curve(label: str, records: Sequence[Mapping[str, Any]], key: str, style: int) -> Curve | None:
    points = [
        (record["step"], float(record[key]))
        for record in records
        if isinstance(record.get(key), (int, float)) and math.isfinite(record[key])
    ]
    if not points:
        return None
    steps, values = (list(column) for column in zip(*points, strict=True))
    width = len(values) // 20 if len(values) > 40 else 1
    smooth = [sum(values[max(0, i + 1 - width) : i + 1]) / min(i + 1, width) for i in range(len(values))]
    return Curve(label=label, x=steps, y=smooth, style=style)
