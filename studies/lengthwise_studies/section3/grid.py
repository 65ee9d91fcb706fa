"""The cells of a figure in a run folder, resumable after each, and their outcomes as rows: medians over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise_studies import cell_runs
from lengthwise_studies.cell_runs import MODEL
from lengthwise_studies.section3.cells import CEILING, Cell, Number, Outcome, Scale, check, run_cell
from lengthwise_studies.synthetic.reparameterization import (
    constant_error,
    length_alone_error,
    reparameterization,
)
from lengthwise_studies.synthetic.tasks import bit_task

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


Outcomes = Mapping[Cell, Outcome]


def run_cells(
    name: str,
    cells: Sequence[Cell],
    out: Path | str,
    scale: Scale,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

    Raises:
        UsageError: a grid with no cells, or one that cannot run (`cells.check`); see `RunFolder`.
        Interrupted: Ctrl-C. Finished cells stay, and `partial` has their rows.
    """
    check(cells, scale)
    return cell_runs.run_cells(
        f"synth-{name}",
        cells,
        run_cell,
        Outcome,
        _rows_of,
        notes(scale),
        out,
        scale,
        name=name,
        resume=resume,
        overwrite=overwrite,
    )


def finished_outcomes(log: SampleLog, cells: Iterable[Cell]) -> dict[Cell, Outcome]:
    """The outcomes of the cells that the log holds, in the order of `cells`."""
    return cell_runs.finished_cells(log, cells, Outcome)


def baselines(cell: Cell, lengths: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
    """Errors by length of the best constant (original units, units of f) and of knowing the length alone."""
    task = bit_task(cell.task)
    function = reparameterization(cell.function, task, shift=cell.shift)
    both = [
        constant_error(task, function, train_length=cell.train_length, length=length) for length in lengths
    ]
    alone = [length_alone_error(task, length=length) for length in lengths]
    return [original for original, _ in both], [transformed for _, transformed in both], alone


def _rows_of(outcomes: Outcomes) -> list[Row]:
    rows: list[Row] = []
    drawn: set[tuple[str, str, int, int]] = set()
    for cell, outcome in outcomes.items():
        rows += cell_rows(cell, outcome)
        # A trivial predictor has no encoding and no optimizer.
        trivial = (cell.task, cell.function, cell.shift, cell.train_length)
        if trivial not in drawn:
            drawn.add(trivial)
            constant, _, _ = baselines(cell, outcome.lengths)
            rows += baseline_rows(cell, outcome.lengths, constant, "best constant")
    return rows


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads; {scale.steps} steps "
        f"(SGD: twice as many) of {scale.batch} fresh samples; {scale.seeds} seeds, which differ in initial "
        "weights and samples. The paper states neither depth, width nor seeds; it trains for 40,000 "
        "epochs of batch 256.",
        f"Values are medians over seeds; the interval is from the best to the worst seed, which covers the true "
        f"median with probability {coverage(scale.seeds):.0%} (not over documents).",
        f"Errors are over {scale.samples} strings at each length, the same for every model. BOS and EOS mark the "
        "ends of a string.",
        "SGD keeps the one of the paper's rates (5e-5, 1e-4, 5e-4) that fits the training data best; Adam has "
        "one rate.",
        "Error in original units: predictions are mapped back through the inverse of f. Outputs outside of the "
        f"image of [smallest outcome, {CEILING} times the longest test length] are clamped first, and counted.",
        "The best constant is the mean of f over the training distribution, mapped back: what a model "
        "without any input would learn.",
    ]
