"""Figures from rows: what the measurements say by length, by position and by distance.

Every function takes tidy rows (of one or several models, arms and seeds), picks those it draws, and
returns a `Picture`, or None where there is nothing to draw. Bands are 95 % intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lengthwise.report.drawing import (
    Curve,
    Picture,
    doubling_axis,
    draw_curves,
    drawn,
    legend_below,
    picture,
    token_axis,
)
from lengthwise.report.numbers import Estimate
from lengthwise.report.series import curves_of
from lengthwise.results import Row

BANDS = "Bands or bars are 95 % intervals (bootstrap over documents)."


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
        caption=f"A rise towards the end of a window means that its length hurts. {BANDS}",
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
    """What a repeated passage is worth to the model, by how far back it stands."""
    chosen = [r for r in _plain(rows, "recall", "benefit") if r.distance]
    return _panels(
        [("", curves_of(chosen, lambda row: row.distance or 0))],
        name=name,
        title="Benefit of a repeated passage by its distance",
        x_label="distance to the first occurrence (tokens)",
        y_label="benefit (nats per token)",
        caption="Loss after a different passage minus loss after the same passage: "
        f"0 means that text so far back is not used. {BANDS}",
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
                f"{panel_title}: {describe(lines)}"
                for lines, (_, panel_title) in zip(curves, panels, strict=True)
            ),
            caption="SCE is the sum of both panels, H(p) + H(q) and KL(p||q) + KL(q||p); mind the two "
            f"scales. Only the right one is about agreement of the two contexts. {BANDS}",
        )


def describe(curves: Sequence[Curve]) -> str:
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
        words = " ".join(f"{heading}: {describe(curves)}".removeprefix(": ") for heading, curves in panels)
        return picture(
            figure,
            name=name,
            title=title,
            alt=f"{title}. Across: {x_label}. Up: {y_label}. {words}",
            caption=caption,
        )
