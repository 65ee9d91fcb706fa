"""Pictures of one panel: test error by length beside training loss by step, every seed drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from matplotlib.axes import Axes

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise_studies.section3.cells import Cell, Number, Outcome
from lengthwise_studies.section3.grid import (
    Outcomes,
    at_length,
    best_constant_errors,
    length_alone_errors,
    spread,
    two_digits,
)
from lengthwise_studies.section3.panels import Panel, label_of

OPTIMIZER_NAMES = {"adam": "Adam", "sgd": "SGD, the paper's"}
_FLOOR = 1e-12
"""An error of exactly 0 has no place on a logarithmic axis."""


def panel_pictures(panel: Panel, outcomes: Outcomes) -> list[Picture]:
    """One picture for each optimizer in original units, and one in units of f where f differs."""
    pictures = []
    for optimizer, name in OPTIMIZER_NAMES.items():
        chosen = {
            cell: outcomes[cell] for cell in panel.cells if cell.optimizer == optimizer and cell in outcomes
        }
        if not chosen:
            continue
        pictures.append(_errors_and_training(panel, chosen, name, f"panel-{panel.name}-{optimizer}"))
        if panel.varies == "function":
            pictures.append(_transformed(panel, chosen, name, f"panel-{panel.name}-{optimizer}-transformed"))
    return pictures


def _errors_and_training(panel: Panel, chosen: Outcomes, optimizer: str, name: str) -> Picture:
    tested = _curves(panel, chosen, lambda outcome: (outcome.lengths, outcome.mse))
    references = _references(chosen)
    with drawn(height=3.3, panels=(1, 2), legend=[*tested, *references]) as (figure, axes):
        left, right = axes[0]
        _shade(left, chosen)
        _draw(left, tested)
        for index, one in enumerate(references):
            style = ("--", ":", "-.", (0, (1, 3)), (0, (5, 5)))[index % 5]
            left.plot(one.x, one.y, color="#777777", linestyle=style, linewidth=1.3, label=one.label)
        _logarithmic(left, "test length (bits)", "mean squared error, original units", "Test error")
        _draw(right, _curves(panel, chosen, lambda outcome: (outcome.steps, outcome.curve)))
        _logarithmic(right, "training step", "mean squared error, units of f", "Training loss")
        legend_below(figure, left)
        return picture(
            figure,
            name=name,
            title=f"{panel.name}. {panel.title} ({optimizer})",
            alt=f"Test error in original units by length, and training loss by step, {optimizer}. "
            + _ends(panel, chosen),
            caption="Every seed as a thin line, their median as a thick one, with a band from the best to the "
            "worst seed. Shaded: training lengths. Grey: predictors that need no model.",
        )


def _transformed(panel: Panel, chosen: Outcomes, optimizer: str, name: str) -> Picture:
    curves = _curves(panel, chosen, lambda outcome: (outcome.lengths, outcome.mse_transformed))
    with drawn(height=3.0, legend=curves) as (figure, axes):
        axis = axes[0][0]
        _shade(axis, chosen)
        _draw(axis, curves)
        for style, (cell, outcome) in enumerate(chosen.items()):
            errors = best_constant_errors(cell, outcome.lengths, transformed=True)
            _draw(axis, [replace(_line("", outcome.lengths, errors), style=style, faint=True)])
            axis.lines[-1].set_linestyle("--")
        _logarithmic(axis, "test length (bits)", "mean squared error, units of f", "")
        legend_below(figure, axis)
        return picture(
            figure,
            name=name,
            title=f"{panel.name}. The same in units of f ({optimizer})",
            alt=f"Test error in units of each f by length, {optimizer}.",
            caption="Not comparable between curves: a compressing f makes every error small, also that of the "
            "best constant (dashed, in the colour of its f), which sees nothing.",
        )


def _curves(
    panel: Panel,
    chosen: Outcomes,
    read: Callable[[Outcome], tuple[Sequence[int], Sequence[Sequence[Number]]]],
) -> list[Curve]:
    """Each seed of each cell, faint, and their median with a band."""
    curves = []
    for style, (cell, outcome) in enumerate(chosen.items()):
        label, (x, by_seed) = label_of(cell, panel.varies), read(outcome)
        seeds = [replace(_line(label, x, values), style=style, faint=True) for values in by_seed]
        over = [spread(values) for values in zip(*by_seed, strict=True)]
        median = replace(
            _line(label, x, [one.value for one in over]),
            low=[
                one.low if one.low is None else max(one.low, _FLOOR) for one in over if one.value is not None
            ],
            high=[
                one.high if one.high is None else max(one.high, _FLOOR)
                for one in over
                if one.value is not None
            ],
            style=style,
        )
        curves += [curve for curve in (*seeds, median) if curve.x]
    return curves


def _line(label: str, x: Sequence[int], values: Sequence[Number]) -> Curve:
    """Points at which a model diverged are left out."""
    points = [(at, max(value, _FLOOR)) for at, value in zip(x, values, strict=True) if value is not None]
    return Curve(label=label, x=[at for at, _ in points], y=[value for _, value in points])


def _draw(axis: Axes, curves: Sequence[Curve]) -> None:
    """One at a time: together, many curves would be moved aside, away from their seeds."""
    for curve in curves:
        draw_curves(axis, [curve])


def _references(chosen: Outcomes) -> list[Curve]:
    """The best constant for each training length, and knowing the length alone where that is not exact."""
    lengths = next(iter(chosen.values())).lengths
    plain = list(dict.fromkeys(Cell(task=cell.task, train_length=cell.train_length) for cell in chosen))
    references = []
    for cell in plain:
        label = f"best constant of 1..{cell.train_length}" if len(plain) > 1 else "best constant"
        references.append(_line(label, lengths, best_constant_errors(cell, lengths)))
    alone = length_alone_errors(plain[0], lengths)
    if max(alone) > 0:
        references.append(_line("knowing the length alone", lengths, alone))
    return references


def _shade(axis: Axes, chosen: Outcomes) -> None:
    for length in sorted({cell.train_length for cell in chosen}):
        axis.axvspan(1, length, color="#E69F00", alpha=0.13, linewidth=0)


def _logarithmic(axis: Axes, x: str, y: str, title: str) -> None:
    axis.set_yscale("log")
    axis.set(xlabel=x, ylabel=y, title=title)


def _ends(panel: Panel, chosen: Outcomes) -> str:
    ends = []
    for cell, outcome in chosen.items():
        end = at_length(outcome, outcome.lengths[-1]).value
        ends.append(
            f"{label_of(cell, panel.varies)} ends at {'no number' if end is None else two_digits(end)}"
        )
    return "; ".join(ends) + "."
