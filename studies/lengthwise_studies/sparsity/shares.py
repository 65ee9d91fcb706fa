"""Shares of right answers: what a cell of a study of sparsity gave, its intervals, comparisons and rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, TypeVar

import torch

from lengthwise.measure.statistics import students_t
from lengthwise.report.tables import Estimate
from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise_studies.cell_runs import MODEL, AnyCell, C, finished_cells, run_cells
from lengthwise_studies.side_by_side import Steps
from lengthwise_studies.synthetic.optimizers import OPTIMIZERS
from lengthwise_studies.verdicts import FEWEST_SEEDS

LAST_STEPS = 0.05
OPTIMIZER = OPTIMIZERS["adam"]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell gave, by seed: plain numbers, which JSON keeps whole."""

    train_loss: list[float]
    """[seed] over the last twentieth of the steps, in nats."""
    samples: int
    """Trials of each count."""
    right: dict[str, list[int]]
    """[seed] right answers, by place (what was tested, in one line)."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The record of a sample log."""
        return asdict(self)


@dataclass(frozen=True)
class Share:
    """A share of right answers over all seeds, with its exact binomial 95 % interval, and that of each seed."""

    value: float
    low: float
    high: float
    n: int
    seeds: tuple[float, ...]


Outcomes = Mapping[C, Outcome]


def share(outcome: Outcome, place: str) -> Share:
    """The share of right answers at a place."""
    return pooled(outcome, [place])


def pooled(outcome: Outcome, places: Sequence[str]) -> Share:
    """The share of right answers over these places together."""
    counts = [sum(seed) for seed in zip(*(outcome.right[place] for place in places), strict=True)]
    each = outcome.samples * len(places)
    trials = each * len(counts)
    low, high = binomial_interval(sum(counts), trials)
    return Share(sum(counts) / trials, low, high, trials, tuple(count / each for count in counts))


def wrong(one: Share) -> float:
    """The error of a share of right answers, or what it may be at most where none was seen."""
    return 1 - one.value if one.value < 1 else 1 - one.low


def final(losses: list[torch.Tensor]) -> list[float]:
    """[seed] mean loss over the last twentieth of the steps."""
    return torch.stack(losses[-max(1, round(LAST_STEPS * len(losses))) :]).mean(0).tolist()


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean over seeds with Student's 95 % interval; none with fewer than `FEWEST_SEEDS`."""
    if len(values) < FEWEST_SEEDS:
        return Estimate(fmean(values))
    half = students_t(0.975, len(values) - 1) * stdev(values) / math.sqrt(len(values))
    return Estimate(fmean(values), fmean(values) - half, fmean(values) + half)


def difference(one: Share, other: Share) -> Estimate:
    """`one` - `other`, paired by seed."""
    paired = over_seeds([a - b for a, b in zip(one.seeds, other.seeds, strict=True)])
    return replace(paired, signed=True)


def above(estimate: Estimate, level: float = 0.0) -> bool:
    """Whether the whole interval lies above a level; never without an interval."""
    return estimate.low is not None and estimate.low > level


def below(estimate: Estimate, level: float = 0.0) -> bool:
    """Whether the whole interval lies below a level; never without an interval."""
    return estimate.high is not None and estimate.high < level


def decision(holding: int, failing: int, tried: int, *, of: str = "") -> str:
    """Whether a claim holds in the cells that were tried; it fails where the interval contradicts it."""
    if not tried:
        return "says nothing: not trained"
    if failing == tried:
        return "does not hold"
    if holding == tried:
        return f"holds for {holding} of {tried}{of}" if of else "holds"
    said = f"holds for {holding} of {tried}{of}" if holding else "not decided"
    if failing and not holding:
        said = f"does not hold for {failing} of {tried}{of}"
    undecided = tried - holding - failing
    return f"{said}, {undecided} not decided" if undecided and undecided < tried else said


def run_grid(
    kind: str,
    cells: Sequence[C],
    check: Callable[[C, Any], None],
    work: Callable[..., Outcome],
    rows: Callable[[C, Outcome], list[Row]],
    notes: Callable[[Any], list[str]],
    out: Path | str,
    scale: Steps,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

    Args:
        kind: of the results.
        cells: in the order of the results.
        check: refuses a cell that cannot run at the scale.
        work: trains and tests a cell at the scale, called with `scale` by name.
        rows: of a cell.
        notes: of a scale: how to read the numbers.
        out: run folder.
        scale: how large the study is, a dataclass.
        resume: continue an unfinished run.
        overwrite: replace an earlier one.

    Raises:
        UsageError: a cell that cannot run (`check`); see `RunFolder`.
        Interrupted: Ctrl-C. Finished cells stay, and `partial` has their rows.
    """
    for cell in cells:
        check(cell, scale)

    def rows_of(outcomes: Outcomes[C]) -> list[Row]:
        return [row for cell, outcome in outcomes.items() for row in rows(cell, outcome)]

    return run_cells(
        kind, cells, work, Outcome, rows_of, notes(scale), out, scale, resume=resume, overwrite=overwrite
    )


S = TypeVar("S")


def read_scale(kind: type[S], results: Results) -> S:
    """The scale that a run recorded; JSON has lists where it has tuples."""
    plain = results.config["scale"]
    return kind(**{name: tuple(one) if isinstance(one, list) else one for name, one in plain.items()})


def finished(log: SampleLog, cells: Iterable[C]) -> dict[C, Outcome]:
    """The outcomes of the cells that the log holds, in the order of `cells`."""
    return finished_cells(log, cells, Outcome)


def share_row(cell: AnyCell, task: str, metric: str, one: Share, *, length: int) -> Row:
    """A share as a row."""
    return Row(
        model=MODEL,
        task=task,
        metric=metric,
        value=one.value,
        unit="share",
        arm=cell.key,
        length=length,
        ci_low=one.low,
        ci_high=one.high,
        n=one.n,
    )


def loss_rows(cell: AnyCell, task: str, outcome: Outcome) -> list[Row]:
    """The final training loss of every seed."""
    return [
        Row(model=MODEL, task=task, metric="train_loss", value=loss, arm=cell.key, seed=seed)
        for seed, loss in enumerate(outcome.train_loss)
    ]


def binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson 1934): quantiles of beta laws."""
    from scipy.special import betaincinv

    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, 0.025)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 0.975)) if failures else 1.0
    return low, high
