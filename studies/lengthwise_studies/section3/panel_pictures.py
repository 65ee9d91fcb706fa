"""Pictures of one panel: test error by length beside training loss by step, every seed drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise_studies.section3.cells import Cell, Number, Outcome
from lengthwise_studies.section3.grid import Outcomes, baselines, spread, two_digits
from lengthwise_studies.section3.panels import Panel

OPTIMIZER_NAMES = {"adam": "Adam", "sgd": "SGD, the paper's"}
LABELS = {"none": "none (NoPE)", "alibi": "ALiBi", "t5": "T5 bias"}
_FLOOR = 1e-12
"""An error of exactly 0 has no place on a logarithmic axis."""


@dataclass(frozen=True)
class _Reference:
    """A trivial predictor: a dashed grey line."""

    label: str
    lengths: Sequence[int]
    errors: Sequence[float]


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


def label_of(cell: Cell, varies: str) -> str:
    """What tells the curve of a cell from the others of its panel."""
    if varies == "encoding":
        return LABELS.get(cell.encoding, cell.encoding)
    if varies == "function":
        return "no f" if cell.function == "identity" else cell.function
    if varies == "alignment":
        return f"by {cell.alignment}, {cell.weight:g}" if cell.alignment else "no alignment"
    return f"trained on 1..{cell.train_length}"


def _errors_and_training(panel: Panel, chosen: Outcomes, optimizer: str, name: str) -> Picture:
    tested = _curves(panel, chosen, transformed=False)
    trained = [
        curve
        for style, (cell, outcome) in enumerate(chosen.items())
        for curve in _seeds(label_of(cell, panel.varies), outcome.steps, outcome.curve, style)
    ]
    references = _references(chosen)
    legend = [*tested, *(Curve(label=one.label, x=(), y=()) for one in references)]
    with drawn(height=3.3, panels=(1, 2), legend=legend) as (figure, axes):
        left, right = axes[0]
        _shade(left, chosen)
        _draw(left, tested)
        _draw_references(left, references)
        _logarithmic(left, "test length (bits)", "mean squared error, original units", "Test error")
        _draw(right, trained)
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
    curves = _curves(panel, chosen, transformed=True)
    references = []
    for cell, outcome in chosen.items():
        _, transformed, _ = baselines(cell, outcome.lengths)
        references.append(_Reference(label_of(cell, panel.varies), outcome.lengths, transformed))
    with drawn(height=3.0, legend=curves) as (figure, axes):
        axis = axes[0][0]
        _shade(axis, chosen)
        _draw(axis, curves)
        for style, reference in enumerate(references):
            line = [max(error, _FLOOR) for error in reference.errors]
            draw_curves(axis, [Curve(label="", x=reference.lengths, y=line, style=style, faint=True)])
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


def _curves(panel: Panel, chosen: Outcomes, *, transformed: bool) -> list[Curve]:
    return [
        curve
        for style, (cell, outcome) in enumerate(chosen.items())
        for curve in _seeds(
            label_of(cell, panel.varies),
            outcome.lengths,
            outcome.mse_transformed if transformed else outcome.mse,
            style,
        )
    ]


def _seeds(label: str, x: Sequence[int], by_seed: Sequence[Sequence[Number]], style: int) -> list[Curve]:
    """Each seed, faint, and their median with a band; points at which a model diverged are left out."""
    curves = []
    for values in by_seed:
        points = [(at, max(value, _FLOOR)) for at, value in zip(x, values, strict=True) if value is not None]
        if points:
            across, up = zip(*points, strict=True)
            curves.append(Curve(label=label, x=across, y=up, style=style, faint=True))
    over = [spread(values) for values in zip(*by_seed, strict=True)]
    kept = [(at, one) for at, one in zip(x, over, strict=True) if one.value is not None]
    if kept:
        curves.append(
            Curve(
                label=label,
                x=[at for at, _ in kept],
                y=[max(one.value or 0, _FLOOR) for _, one in kept],
                low=[None if one.low is None else max(one.low, _FLOOR) for _, one in kept],
                high=[None if one.high is None else max(one.high, _FLOOR) for _, one in kept],
                style=style,
            )
        )
    return curves


def _draw(axis: Axes, curves: Sequence[Curve]) -> None:
    """One at a time: together, many curves would be moved aside, away from their seeds."""
    for curve in curves:
        draw_curves(axis, [curve])


def _references(chosen: Outcomes) -> list[_Reference]:
    """The best constant for each training length, and knowing the length alone where that is not exact."""
    references = []
    plain = dict.fromkeys(
        Cell(task=cell.task, train_length=cell.train_length, encoding="none") for cell in chosen
    )
    lengths = next(iter(chosen.values())).lengths
    for cell in plain:
        constant, _, _ = baselines(cell, lengths)
        suffix = f" of 1..{cell.train_length}" if len(plain) > 1 else ""
        references.append(_Reference(f"best constant{suffix}", lengths, constant))
    _, _, alone = baselines(next(iter(plain)), lengths)
    if max(alone) > 0:
        references.append(_Reference("knowing the length alone", lengths, alone))
    return references


def _draw_references(axis: Axes, references: Sequence[_Reference]) -> None:
    for index, one in enumerate(references):
        axis.plot(
            one.lengths,
            [max(error, _FLOOR) for error in one.errors],
            color="#777777",
            linestyle=("--", ":", "-.", (0, (1, 3)), (0, (5, 5)))[index % 5],
            linewidth=1.3,
            label=one.label,
        )


def _shade(axis: Axes, chosen: Outcomes) -> None:
    for length in sorted({cell.train_length for cell in chosen}):
        axis.axvspan(1, length, color="#E69F00", alpha=0.13, linewidth=0)


def _logarithmic(axis: Axes, x: str, y: str, title: str) -> None:
    axis.set_yscale("log")
    axis.set_xlabel(x)
    axis.set_ylabel(y)
    axis.set_title(title)


def _ends(panel: Panel, chosen: Outcomes) -> str:
    said = []
    for cell, outcome in chosen.items():
        end = _median_end(outcome)
        said.append(
            f"{label_of(cell, panel.varies)} ends at {'no number' if end is None else two_digits(end)}"
        )
    return "; ".join(said) + "."


def _median_end(outcome: Outcome) -> Number:
    return spread([seed[-1] for seed in outcome.mse]).value
