"""The cells of a figure in a run folder, resumable after each, and their outcomes as rows: medians over seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

from lengthwise.report.html import Section
from lengthwise.results import Row
from lengthwise_studies.cell_runs import MODEL, Grid
from lengthwise_studies.section3.cells import CEILING, Cell, Number, Outcome, Scale, check, run_cell
from lengthwise_studies.synthetic.reparameterization import (
    constant_error,
    length_alone_error,
    reparameterization,
)
from lengthwise_studies.synthetic.tasks import bit_task

ORIGINAL = "squared units of the task"
TRANSFORMED = "squared units of f"
Outcomes = Mapping[Cell, Outcome]


@dataclass(frozen=True)
class Spread:
    """The median over seeds with an interval; None where more than half of the seeds diverged."""

    value: Number
    low: Number
    high: Number

    @property
    def text(self) -> str:
        """`1.2e-05 [3.0e-06, 8.1e-05]`, or `diverged`."""
        if self.value is None:
            return "diverged"
        ends = ["diverged" if end is None else two_digits(end) for end in (self.low, self.high)]
        return f"{two_digits(self.value)} [{ends[0]}, {ends[1]}]"

    def below(self, other: Spread) -> bool:
        """Whether every seed lies below every seed of the other; a diverged model is above all numbers."""
        return self.high is not None and (other.low is None or self.high < other.low)


def spread(values: Sequence[Number]) -> Spread:
    """The median and, as interval, the smallest and the largest; a diverged model counts as the largest.

    From the smallest to the largest of five seeds covers the true median with probability
    1 - 2 (1/2)^5 = 94 %, of six seeds and more with over 95 %.
    """
    numbers = sorted(math.inf if value is None else value for value in values)
    middle, low, high = median(numbers), numbers[0], numbers[-1]
    return Spread(*(number if math.isfinite(number) else None for number in (middle, low, high)))


def two_digits(value: float) -> str:
    """Two significant digits: `1.2e-05`, `0.0017`, `3.6`, `1900`."""
    short = f"{value:.2g}"
    return f"{float(short):.0f}" if 100 <= abs(float(short)) < 1e5 else short


def within(cell: Cell, outcome: Outcome) -> list[Number]:
    """[seed] mean test error over the training lengths, in original units."""
    return _means(outcome, range(1, cell.train_length + 1))


def beyond(cell: Cell, outcome: Outcome) -> list[Number]:
    """[seed] mean test error over the lengths beyond training, in original units."""
    return _means(outcome, range(cell.train_length + 1, outcome.lengths[-1] + 1))


def _means(outcome: Outcome, lengths: Collection[int]) -> list[Number]:
    """[seed] the mean over these lengths; None if the model diverged or none of them was tested."""
    at = [index for index, length in enumerate(outcome.lengths) if length in lengths]
    chosen = [[seed[index] for index in at] for seed in outcome.mse]
    return [fmean(seed) if seed and None not in seed else None for seed in chosen]  # type: ignore[type-var]


def at_length(outcome: Outcome, length: int) -> Spread:
    """The test error at one length, or at the longest one tested if that is shorter."""
    index = outcome.lengths.index(min(length, outcome.lengths[-1]))
    return spread([seed[index] for seed in outcome.mse])


def best_constant_errors(cell: Cell, lengths: Iterable[int], *, transformed: bool = False) -> list[float]:
    """Errors by length of the best constant, in original units or in those of f."""
    task = bit_task(cell.task)
    function = reparameterization(cell.function, task, shift=cell.shift)
    train_length = cell.train_length
    return [
        constant_error(task, function, train_length=train_length, length=length)[transformed]
        for length in lengths
    ]


def length_alone_errors(cell: Cell, lengths: Iterable[int]) -> list[float]:
    """Errors by length of knowing the length alone."""
    return [length_alone_error(bit_task(cell.task), length=length) for length in lengths]


def grid_of(name: str, cells: Sequence[Cell], page: Callable[[Scale, Outcomes], list[Section]]) -> Grid:
    """The grid of these cells; `page` shows their outcomes."""
    return Grid(
        kind=f"synth-{name}",
        name=name,
        scale=Scale,
        outcome=Outcome,
        cells=lambda _: cells,
        check=check,
        work=run_cell,
        rows=_rows,
        notes=notes,
        page=page,
    )


def _rows(outcomes: Outcomes) -> list[Row]:
    """Rows of every cell, and behind those of the first cell that it serves, the errors of the best constant."""
    rows: list[Row] = []
    drawn: set[Cell] = set()
    what = "best constant"
    for cell, outcome in outcomes.items():
        rows += _cell_rows(cell, outcome)
        # A trivial predictor has no encoding, no optimizer and no alignment.
        trivial = replace(cell, encoding="none", optimizer="adam", alignment=None, weight=0.0)
        if trivial not in drawn:
            drawn.add(trivial)
            of = partial(
                Row, model=what, task=cell.task, metric="mse", unit=ORIGINAL, arm=f"{what}, {cell.key}"
            )
            errors = best_constant_errors(cell, outcome.lengths)
            rows += [
                of(value=error, length=length) for length, error in zip(outcome.lengths, errors, strict=True)
            ]
    return rows


def _cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """Medians by length for each metric, and by seed the training loss and the means over lengths."""
    row = partial(Row, model=MODEL, task=cell.task, arm=cell.key)

    def over_seeds(values: Sequence[Number], **about) -> Row:
        over = spread(values)
        return row(value=over.value, ci_low=over.low, ci_high=over.high, n=len(values), **about)

    by_length = {"mse": (outcome.mse, ORIGINAL)}
    if cell.function != "identity":
        by_length["mse_transformed"] = (outcome.mse_transformed, TRANSFORMED)
        by_length["clamped"] = ([list(seed) for seed in outcome.clamped], "share")
    rows = [
        over_seeds(values, metric=metric, unit=unit, length=length)
        for metric, (by_seed, unit) in by_length.items()
        for length, *values in zip(outcome.lengths, *by_seed, strict=True)
    ]
    means = {
        "train_loss": (outcome.train_loss, TRANSFORMED),
        "mse_in_range": (within(cell, outcome), ORIGINAL),
        "mse_out_of_range": (beyond(cell, outcome), ORIGINAL),
        **{f"disagreement_by_{name}": (found, TRANSFORMED) for name, found in outcome.disagreement.items()},
    }
    for metric, (values, unit) in means.items():
        rows.append(over_seeds(values, metric=metric, unit=unit))
        rows += [row(metric=metric, unit=unit, value=value, seed=seed) for seed, value in enumerate(values)]
    return rows


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads; {scale.steps} steps "
        f"(SGD: twice as many) of {scale.batch} fresh samples; {scale.seeds} seeds, which differ in initial "
        "weights and samples. The paper states neither depth, width nor seeds; it trains for 40,000 "
        "epochs of batch 256.",
        f"Values are medians over seeds; the interval is from the best to the worst seed, which covers the true "
        f"median with probability {1 - 2 * 0.5**scale.seeds:.0%} (not over documents).",
        f"Errors are over {scale.samples} strings at each length, the same for every model. BOS and EOS mark the "
        "ends of a string.",
        "SGD keeps the one of the paper's rates (5e-5, 1e-4, 5e-4) that fits the training data best; Adam has "
        "one rate.",
        "Error in original units: predictions are mapped back through the inverse of f. Outputs outside of the "
        f"image of [smallest outcome, {CEILING} times the longest test length] are clamped first, and counted.",
        "The best constant is the mean of f over the training distribution, mapped back: what a model "
        "without any input would learn.",
    ]
