"""Pictures of one panel: test error by length beside training loss by step, every seed drawn."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from lengthwise.report.drawing import COLORS, Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise_studies.section3.cells import Cell, Number
from lengthwise_studies.section3.grid import Outcomes, at_length, spread
from lengthwise_studies.section3.panels import OPTIMIZERS, Panel
from lengthwise_studies.synthetic.reparameterization import length_alone_error

BySeed = Sequence[Sequence[Number]]


def panel_pictures(panel: Panel, outcomes: Outcomes) -> list[Picture]:
    """One picture for each optimizer in original units, and one in units of f where f differs."""
    pictures = []
    for optimizer in panel.optimizers:
        chosen = {label: cell for cell, label in panel.cells.items() if cell.optimizer == optimizer}
        pictures.append(_errors_and_training(panel, chosen, outcomes, optimizer))
        if panel.varies == "function":
            pictures.append(_transformed(panel, chosen, outcomes, optimizer))
    return pictures


def _errors_and_training(
    panel: Panel, chosen: dict[str, Cell], outcomes: Outcomes, optimizer: str
) -> Picture:
    lengths = outcomes[next(iter(chosen.values()))].lengths
    tested = _curves(lengths, {label: outcomes[cell].mse for label, cell in chosen.items()})
    references = _references(list(chosen.values()), lengths)
    steps = outcomes[next(iter(chosen.values()))].steps
    trained = _curves(steps, {label: outcomes[cell].curve for label, cell in chosen.items()})
    ends = "; ".join(
        f"{label} {at_length(outcomes[cell], lengths[-1]).text}" for label, cell in chosen.items()
    )
    with drawn(height=3.3, panels=(1, 2), legend=[*tested, *references]) as (figure, axes):
        left, right = axes[0]
        _shade(left, chosen)
        _draw(left, tested, "test length (bits)", "original units")
        for one, style in zip(references, ("--", ":", "-.", (0, (1, 3)), (0, (5, 5))), strict=False):
            left.plot(one.x, one.y, color="#777777", linestyle=style, linewidth=1.3, label=one.label)
        left.set_title("Test error")
        _draw(right, trained, "training step", "units of f")
        right.set_title("Training loss")
        legend_below(figure, left)
        return picture(
            figure,
            name=f"panel-{panel.name}-{optimizer}",
            title=f"{panel.name}. {panel.title} ({OPTIMIZERS[optimizer]})",
            alt=f"Test error in original units by length, and training loss by step. At {lengths[-1]} bits: {ends}.",
            caption="Every seed as a thin line, their median as a thick one, with a band from the best to the "
            "worst seed. Shaded: training lengths. Grey: predictors that need no model.",
        )


def _transformed(panel: Panel, chosen: dict[str, Cell], outcomes: Outcomes, optimizer: str) -> Picture:
    lengths = outcomes[next(iter(chosen.values()))].lengths
    curves = _curves(lengths, {label: outcomes[cell].mse_transformed for label, cell in chosen.items()})
    with drawn(height=3.0, legend=curves) as (figure, axes):
        axis = axes[0][0]
        _shade(axis, chosen)
        _draw(axis, curves, "test length (bits)", "units of f")
        for color, cell in zip(COLORS, chosen.values(), strict=False):
            errors = cell.constant_errors(lengths, transformed=True)
            axis.plot(lengths, errors, color=color, linestyle="--", linewidth=0.8, alpha=0.45)
        legend_below(figure, axis)
        return picture(
            figure,
            name=f"panel-{panel.name}-{optimizer}-transformed",
            title=f"{panel.name}. The same in units of f ({OPTIMIZERS[optimizer]})",
            alt=f"Test error in units of each f by length, {optimizer}.",
            caption="Not comparable between curves: a compressing f makes every error small, also that of the "
            "best constant (dashed, in the colour of its f), which sees nothing.",
        )


def _curves(x: Sequence[int], found: dict[str, BySeed]) -> list[Curve]:
    """Each seed, faint, and their median with a band. Points at which a model diverged are left out."""
    curves = []
    for style, (label, by_seed) in enumerate(found.items()):
        for values in by_seed:
            seed = {at: value for at, value in zip(x, values, strict=True) if value is not None}
            curves.append(Curve(label=label, x=list(seed), y=list(seed.values()), style=style, faint=True))
        over = [(at, spread(values).plain) for at, *values in zip(x, *by_seed, strict=True)]
        over = [(at, one) for at, one in over if one["value"] is not None]
        low, high = ([one[end] for _, one in over] for end in ("ci_low", "ci_high"))
        y = [one["value"] or 0 for _, one in over]
        curves.append(Curve(label=label, x=[at for at, _ in over], y=y, low=low, high=high, style=style))
    return [curve for curve in curves if curve.x]


def _shade(axis: Axes, chosen: dict[str, Cell]) -> None:
    for length in sorted({cell.train_length for cell in chosen.values()}):
        axis.axvspan(1, length, color="#E69F00", alpha=0.13, linewidth=0)


def _draw(axis: Axes, curves: Sequence[Curve], across: str, unit: str) -> None:
    """One at a time: together, many curves would be moved aside, away from their seeds."""
    for curve in curves:
        draw_curves(axis, [curve])
    axis.set_yscale("log")
    axis.set(xlabel=across, ylabel=f"mean squared error, {unit}")


def _references(cells: Sequence[Cell], lengths: Sequence[int]) -> list[Curve]:
    """The best constant for each training length, and knowing the length alone where that is not exact."""
    plain = list(dict.fromkeys(Cell(task=cell.task, train_length=cell.train_length) for cell in cells))
    several = len(plain) > 1
    references = [
        Curve(
            label=f"best constant of 1..{cell.train_length}" if several else "best constant",
            x=lengths,
            y=cell.constant_errors(lengths),
        )
        for cell in plain
    ]
    alone = [length_alone_error(plain[0].of, length=length) for length in lengths]
    if max(alone) > 0:
        references.append(Curve(label="knowing the length alone", x=lengths, y=alone))
    return references
