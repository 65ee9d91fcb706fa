"""A cell's outcome as rows: medians over seeds by length, and each seed's summary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from lengthwise.results import Row
from lengthwise.synthetic.cells import Cell
from lengthwise.synthetic.sweep import Number, Outcome

MODEL = "small Transformer"
ORIGINAL = "squared units of the task"
TRANSFORMED = "squared units of f"


@dataclass(frozen=True)
class Spread:
    """The median over seeds with an interval; None where more than half of the seeds diverged."""

    value: Number
    low: Number
    high: Number


def spread(values: Sequence[Number]) -> Spread:
    """The median and, as interval, the smallest and the largest; a diverged model counts as the largest.

    From the smallest to the largest of five seeds covers the true median with probability
    1 - 2 (1/2)^5 = 94 %, of six seeds and more with over 95 %.
    """
    numbers = sorted(math.inf if value is None else value for value in values)
    middle, low, high = median(numbers), numbers[0], numbers[-1]
    return Spread(*(number if math.isfinite(number) else None for number in (middle, low, high)))


def text(over: Spread) -> str:
    """`1.2e-05 [3.0e-06, 8.1e-05]`, or `diverged`."""
    if over.value is None:
        return "diverged"
    ends = ["diverged" if end is None else two_digits(end) for end in (over.low, over.high)]
    return f"{two_digits(over.value)} [{ends[0]}, {ends[1]}]"


def two_digits(value: float) -> str:
    """Two significant digits: `1.2e-05`, `0.0017`, `3.6`, `1900`."""
    short = f"{value:.2g}"
    return f"{float(short):.0f}" if 100 <= abs(float(short)) < 1e5 else short


def coverage(seeds: int) -> float:
    """How probably the smallest to the largest of independent seeds covers the true median."""
    return 1 - 2 * 0.5**seeds


def mean_error(
    errors: Sequence[Number], lengths: Sequence[int], *, above: int = 0, up_to: int | None = None
) -> Number:
    """The mean over lengths in (above, up_to]; None if the model diverged or there is no such length."""
    chosen = [
        error
        for error, length in zip(errors, lengths, strict=True)
        if length > above and (up_to is None or length <= up_to)
    ]
    finite = [error for error in chosen if error is not None]
    return fmean(finite) if finite and len(finite) == len(chosen) else None


def cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """Medians by length for each metric, and by seed the training loss and the means over lengths."""
    rows: list[Row] = []
    metrics = [("mse", outcome.mse, ORIGINAL)]
    if cell.function != "identity":
        metrics += [
            ("mse_transformed", outcome.mse_transformed, TRANSFORMED),
            ("clamped", [list(seed) for seed in outcome.clamped], "share"),
        ]
    for metric, by_seed, unit in metrics:
        for index, length in enumerate(outcome.lengths):
            over = spread([seed[index] for seed in by_seed])
            rows.append(_row(cell, metric, over, unit, length=length, n=len(by_seed)))
    summaries: dict[str, tuple[list[Number], str]] = {
        "train_loss": (outcome.train_loss, TRANSFORMED),
        "mse_in_range": (within(cell, outcome), ORIGINAL),
        "mse_out_of_range": (beyond(cell, outcome), ORIGINAL),
    }
    for name, values in outcome.disagreement.items():
        summaries[f"disagreement_by_{name}"] = (values, TRANSFORMED)
    for metric, (values, unit) in summaries.items():
        rows.append(_row(cell, metric, spread(values), unit, n=len(values)))
        rows += [
            Row(model=MODEL, task=cell.task, metric=metric, value=value, unit=unit, arm=cell.key, seed=seed)
            for seed, value in enumerate(values)
        ]
    return rows


def within(cell: Cell, outcome: Outcome) -> list[Number]:
    """[seed] mean test error over the training lengths, in original units."""
    return [mean_error(errors, outcome.lengths, up_to=cell.train_length) for errors in outcome.mse]


def beyond(cell: Cell, outcome: Outcome) -> list[Number]:
    """[seed] mean test error over the lengths beyond training, in original units."""
    return [mean_error(errors, outcome.lengths, above=cell.train_length) for errors in outcome.mse]


def at_length(outcome: Outcome, length: int, *, transformed: bool = False) -> Spread:
    """The test error at one length, or at the longest one tested if that is shorter."""
    index = outcome.lengths.index(min(length, outcome.lengths[-1]))
    by_seed = outcome.mse_transformed if transformed else outcome.mse
    return spread([seed[index] for seed in by_seed])


def most_clamped(cell: Cell, outcome: Outcome) -> Number:
    """The largest share of clamped predictions over seeds and lengths beyond training; None if none is beyond.

    Within it, an output a hair outside of the image of f (at length 1) is clamped without consequence.
    """
    shares = [
        share
        for seed in outcome.clamped
        for share, length in zip(seed, outcome.lengths, strict=True)
        if length > cell.train_length
    ]
    return max(shares, default=None)


def baseline_rows(cell: Cell, lengths: Sequence[int], errors: Sequence[float], what: str) -> list[Row]:
    """Errors of a trivial predictor, which are exact."""
    return [
        Row(
            model=what,
            task=cell.task,
            metric="mse",
            value=error,
            unit=ORIGINAL,
            arm=f"{what}, {cell.key}",
            length=length,
        )
        for length, error in zip(lengths, errors, strict=True)
    ]


def _row(cell: Cell, metric: str, over: Spread, unit: str, *, n: int, length: int | None = None) -> Row:
    return Row(
        model=MODEL,
        task=cell.task,
        metric=metric,
        value=over.value,
        unit=unit,
        arm=cell.key,
        length=length,
        ci_low=over.low,
        ci_high=over.high,
        n=n,
    )
