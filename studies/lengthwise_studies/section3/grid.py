"""Outcomes of cells in numbers: medians over seeds, rows, and how to read them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

from lengthwise.results import Row
from lengthwise_studies.cell_runs import MODEL
from lengthwise_studies.section3.cells import CEILING, Cell, Number, Outcome, Scale

ORIGINAL = "squared units of the task"
TRANSFORMED = "squared units of f"
Outcomes = Mapping[Cell, Outcome]


@dataclass(frozen=True)
class Spread:
    """The median over seeds, and the smallest and the largest as interval; infinite where a model diverged.

    From the smallest to the largest of five seeds covers the true median with probability
    1 - 2 (1/2)^5 = 94 %, of six seeds and more with over 95 %.
    """

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """`1.2e-05 [3.0e-06, 8.1e-05]`, or `diverged`."""
        if math.isinf(self.value):
            return "diverged"
        return f"{two_digits(self.value)} [{two_digits(self.low)}, {two_digits(self.high)}]"

    @property
    def plain(self) -> dict[str, Any]:
        """As fields of a row."""
        fields = {"value": self.value, "ci_low": self.low, "ci_high": self.high}
        return {name: one if math.isfinite(one) else None for name, one in fields.items()}


def spread(values: Sequence[Number]) -> Spread:
    """Of the seeds; a diverged model is above all numbers."""
    numbers = [math.inf if value is None else value for value in values]
    return Spread(median(numbers), min(numbers), max(numbers))


def two_digits(value: float) -> str:
    """Two significant digits: `1.2e-05`, `0.0017`, `3.6`, `1900`."""
    if math.isinf(value):
        return "diverged"
    short = f"{value:.2g}"
    return f"{float(short):.0f}" if 100 <= abs(float(short)) < 1e5 else short


def mean_errors(cell: Cell, outcome: Outcome) -> tuple[list[Number], list[Number]]:
    """[seed] the mean test error over the lengths in training range and over those beyond, in original units.

    None if the model diverged or none of the lengths was tested.
    """
    inside = sum(length <= cell.train_length for length in outcome.lengths)
    parts: Any = [seed[:inside] for seed in outcome.mse], [seed[inside:] for seed in outcome.mse]
    within, beyond = ([fmean(seed) if seed and None not in seed else None for seed in part] for part in parts)
    return within, beyond


def at_length(outcome: Outcome, length: int) -> Spread:
    """The test error at one length."""
    return spread([seed[outcome.lengths.index(length)] for seed in outcome.mse])


def rows(outcomes: Outcomes) -> Iterator[Row]:
    """Of every cell the medians by length for each metric, and by seed the training loss and means over lengths."""
    for cell, outcome in outcomes.items():
        row = partial(Row, model=MODEL, task=cell.task, arm=cell.key)
        by_length: list[tuple[str, str, Any]] = [("mse", ORIGINAL, outcome.mse)]
        if cell.function != "identity":
            by_length.append(("mse_transformed", TRANSFORMED, outcome.mse_transformed))
            by_length.append(("clamped", "share", outcome.clamped))
        for metric, unit, by_seed in by_length:
            for length, *values in zip(outcome.lengths, *by_seed, strict=True):
                yield row(metric=metric, unit=unit, length=length, n=len(values), **spread(values).plain)
        inside, beyond = mean_errors(cell, outcome)
        means = [("train_loss", TRANSFORMED, outcome.train_loss)]
        means += [("mse_in_range", ORIGINAL, inside), ("mse_out_of_range", ORIGINAL, beyond)]
        for metric, unit, values in means:
            yield row(metric=metric, unit=unit, n=len(values), **spread(values).plain)
            for seed, value in enumerate(values):
                yield row(metric=metric, unit=unit, value=value, seed=seed)


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads; {scale.steps} steps (SGD: twice "
        f"as many) of {scale.batch} fresh samples; {scale.seeds} seeds, which differ in initial weights and samples. "
        "The paper states neither depth, width nor seeds; it trains for 40,000 epochs of batch 256.",
        "Values are medians over seeds; the interval is from the best to the worst seed, which covers the true "
        f"median with probability {1 - 2 * 0.5**scale.seeds:.0%} (not over documents).",
        f"Errors are over {scale.samples} strings at each length, the same for every model. BOS and EOS mark the "
        "ends of a string.",
        "SGD keeps the one of the paper's rates (5e-5, 1e-4, 5e-4) that fits the training data best; Adam has "
        "one rate.",
        "Error in original units: predictions are mapped back through the inverse of f. Outputs outside of the image "
        f"of [smallest outcome, {CEILING} times the longest test length] are clamped first, and counted.",
        "The best constant is the mean of f over the training distribution, mapped back: what a model without any "
        "input would learn.",
    ]
