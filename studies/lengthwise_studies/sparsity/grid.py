"""Studies of cells: in each a stack of small models, one for each seed, is trained, and its right answers counted.

Claims about them are decided on cases: an interval over seeds for each cell that the claim is about.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, stdev
from typing import Any

import torch
from matplotlib.axes import Axes
from scipy.special import betaincinv
from torch import Tensor

from lengthwise.measure.statistics import students_t
from lengthwise.report.drawing import Curve, Picture, curve_picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Row
from lengthwise_studies.cell_runs import MODEL, Grid
from lengthwise_studies.claims import (
    FAILS,
    HOLDS,
    NOT_DECIDED,
    NOT_TRAINED,
    Claim,
    Decision,
    Rule,
    judge,
    verdict_table,
)
from lengthwise_studies.over_seeds import FEWEST_SEEDS
from lengthwise_studies.synthetic.training import OPTIMIZERS, CellScale, final_losses, one_thread, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

LEARNED = 0.9
"""The share of right answers in the training range from which a cell counts as trained."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell gave: the loss [seed] over the last twentieth of the steps, and right answers [seed] of each test.

    A test is what was asked, and the length of the samples.
    """

    train_loss: list[float]
    samples: int
    right: list[tuple[str, int, list[int]]]
    seconds: float


def run_stack(
    scale: CellScale,
    batches: Iterable[Any],
    losses: Callable[[StackedTransformer, Any], Tensor],
    test: Callable[[StackedTransformer], list[tuple[str, int, list[int]]]],
    *,
    steps: int,
    rate: float,
    **architecture: Any,
) -> Outcome:
    """Train a model from every seed of the scale, and count the right answers of each test."""
    started = time.perf_counter()
    sizes = {"width": scale.width, "heads": scale.heads, "hidden": 4 * scale.width}
    model = StackedTransformer(Architecture(**sizes, **architecture), range(scale.seeds))
    rates = [rate] * scale.seeds
    with one_thread():
        taken = list(train(model, batches, OPTIMIZERS["adam"], count=steps, rates=rates, losses=losses))
        right = test(model)
    loss, seconds = final_losses(torch.stack(taken)).tolist(), time.perf_counter() - started
    return Outcome(train_loss=loss, samples=scale.samples, right=right, seconds=seconds)


@dataclass(frozen=True, kw_only=True)
class Share(Estimate):
    """A share of right answers over all seeds, with its exact binomial 95 % interval, and that of each seed."""

    value: float
    low: float = 0.0
    high: float = 1.0
    n: int
    seeds: tuple[float, ...]

    @property
    def wrong(self) -> float:
        """The share of wrong answers, or what it may be at most where none was seen."""
        return 1 - self.value if self.value < 1 else 1 - self.low


def share(outcome: Outcome, *tests: tuple[str, int]) -> Share:
    """The share of right answers over these tests together."""
    right_of = {(what, length): right for what, length, right in outcome.right}
    counts = [sum(seed) for seed in zip(*(right_of[one] for one in tests), strict=True)]
    each = outcome.samples * len(tests)
    trials, right = each * len(counts), sum(counts)
    # Clopper and Pearson (1934): quantiles of beta laws.
    low = float(betaincinv(right, trials - right + 1, 0.025)) if right else 0.0
    high = float(betaincinv(right + 1, trials - right, 0.975)) if right < trials else 1.0
    seeds = tuple(count / each for count in counts)
    return Share(value=right / trials, low=low, high=high, n=trials, seeds=seeds)


def by_length(outcome: Outcome, what: str, lengths: Sequence[int]) -> list[Share]:
    """The share of right answers in a test at each length."""
    return [share(outcome, (what, length)) for length in lengths]


def over_seeds(values: Sequence[float], *, signed: bool = False) -> Estimate:
    """The mean over seeds with Student's 95 % interval; none with fewer than three."""
    if len(values) < FEWEST_SEEDS:
        return Estimate(fmean(values), signed=signed)
    mean, half = fmean(values), students_t(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return Estimate(mean, mean - half, mean + half, signed=signed)


def difference(one: Share, other: Share) -> Estimate:
    """`one` - `other`, paired by seed."""
    return over_seeds([a - b for a, b in zip(one.seeds, other.seeds, strict=True)], signed=True)


@dataclass(frozen=True)
class Case:
    """One case of a claim: confirmed where the whole interval lies above the level, or below it if `lower`.

    Contradicted where it lies on the other side. `words` are its numbers; a case that does not count decides nothing.
    """

    words: str
    estimate: Estimate
    level: float = 0.0
    lower: bool = False
    counts: bool = True

    def lies(self, *, below: bool) -> bool:
        """Whether the whole interval lies on that side of the level; without one it does not."""
        end = self.estimate.high if below else self.estimate.low
        return end is not None and (end < self.level if below else end > self.level)


def decision(holding: int, failing: int, tried: int, _: int = 0, *, of: str = "") -> str:
    """Whether a claim holds in the cases that were tried; it fails where the interval contradicts it."""
    if failing == tried:
        return FAILS
    if holding == tried:
        return f"holds for {holding} of {tried}{of}" if of else HOLDS
    said = f"holds for {holding} of {tried}{of}" if holding else NOT_DECIDED
    if failing and not holding:
        said = f"does not hold for {failing} of {tried}{of}"
    undecided = tried - holding - failing
    return f"{said}, {undecided} not decided" if undecided and undecided < tried else said


def by_cases(rule: str, cases: Callable[[Any], Iterable[Case]], words: Callable[..., str] = decision) -> Rule:
    """The rule of a claim that is decided on cases, in `words` of how many confirm, contradict, count, and are."""

    def decide(numbers: Any) -> Decision:
        every = list(cases(numbers))
        counted = [one for one in every if one.counts]
        confirm = sum(one.lies(below=one.lower) for one in counted)
        contradict = sum(one.lies(below=not one.lower) for one in counted)
        said = words(confirm, contradict, len(counted), len(every)) if counted else NOT_TRAINED
        return "; ".join(one.words for one in every if one.words) or "none", said

    return Rule(rule, decide)


def share_rows(names: Callable[[Any, str], tuple[str, str]], outcomes: Mapping[Any, Outcome]) -> list[Row]:
    """The training loss by seed, and the share of right answers of every test with its binomial interval.

    `names` gives task and metric of a cell's test; where the test is "", of the training loss.
    """
    rows: list[Row] = []
    for cell, outcome in outcomes.items():
        row = partial(Row, model=MODEL, arm=cell.key)
        task, metric = names(cell, "")
        losses = enumerate(outcome.train_loss)
        rows += [row(task=task, metric=metric, value=loss, seed=seed) for seed, loss in losses]
        for what, length, _ in outcome.right:
            task, metric = names(cell, what)
            one = share(outcome, (what, length))
            of = row(task=task, metric=metric, value=one.value, unit="share", length=length)
            rows.append(replace(of, ci_low=one.low, ci_high=one.high, n=one.n))
    return rows


def share_picture(
    lines: Iterable[tuple[str, str, Outcome, str]],
    lengths: Mapping[str, Sequence[int]],
    trained: Mapping[str, tuple[int, int]],
    *,
    caption: str,
    **words: Any,
) -> Picture | None:
    """Shares by length with each seed as a thin line; None where there are no lines.

    `lines` are panel, label, the outcome of a cell, and what was tested. `lengths` of the tests, and the range of
    lengths in training, are by panel.
    """
    panels: dict[str, list[Curve]] = {panel: [] for panel in trained}
    styles: dict[str, int] = {}
    for panel, label, outcome, what in lines:
        shares = by_length(outcome, what, lengths[panel])
        curve = partial(Curve, label=label, x=lengths[panel], style=styles.setdefault(label, len(styles)))
        panels[panel] += [curve(y=y, faint=True) for y in zip(*(one.seeds for one in shares), strict=True)]
        low, high = [one.low for one in shares], [one.high for one in shares]
        panels[panel].append(curve(y=[one.value for one in shares], low=low, high=high))

    def dress(axes: Axes, panel: str, _: Sequence[float]) -> None:
        axes.axvspan(*trained[panel], color="#E69F00", alpha=0.13, linewidth=0)
        axes.set_ylim(-0.03, 1.03)

    caption = (
        "Pooled over seeds, with exact binomial 95 % intervals; each seed as a thin line. Shaded: training lengths. "
        + caption
    )
    return curve_picture(panels, dress=dress, caption=caption, **words)


def counted(
    names: Callable[[Any, str], tuple[str, str]],
    *,
    claims: Callable[[Any], Iterable[Claim]],
    numbers: Callable[[Any, Any], Any] = lambda scale, found: found,
    reading: Sequence[str],
    tables: Callable[[Any, Any], list[Table]] = lambda scale, found: [],
    pictures: Callable[[Any, Any], Iterable[Picture | None]],
    title: str,
    question: str,
    **grid: Any,
) -> Grid:
    """A grid of cells that count right answers; its page has the verdicts, then tables and pictures.

    `claims` and what they are decided on are at a scale. `reading` says how to read the verdicts. See `share_rows`
    for `names`.
    """

    def page(scale: Any, found: Any) -> list[Section]:
        judged = judge(claims(scale), numbers(scale, found))
        verdicts = verdict_table(judged, ours="ours, mean over seeds [95 %]", notes=reading)
        shown = {
            "tables": [verdicts, *tables(scale, found)],
            "figures": [*filter(None, pictures(scale, found))],
        }
        return [Section(title=title, paragraphs=[question], **shown)]

    return Grid(outcome=Outcome, rows=partial(share_rows, names), page=page, claims=claims, **grid)
