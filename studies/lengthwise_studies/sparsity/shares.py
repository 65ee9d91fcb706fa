"""Shares of right answers: what a stack of small models gave, its intervals, and verdicts over cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from lengthwise.measure.over_seeds import FEWEST_SEEDS
from lengthwise.measure.over_seeds import over_seeds as seeds_and_documents
from lengthwise.report.tables import Estimate
from lengthwise_studies.claims import FAILS, HOLDS, NOT_DECIDED, NOT_TRAINED, Decision


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell gave, by seed: plain numbers, which JSON keeps whole."""

    train_loss: list[float]
    """[seed] over the last twentieth of the steps, in nats."""
    samples: int
    """Trials of each count."""
    right: dict[str, list[int]]
    """[seed] right answers, by place (what was tested, and at which length: `place`)."""
    seconds: float


@dataclass(frozen=True)
class Share:
    """A share of right answers over all seeds, with its exact binomial 95 % interval, and that of each seed."""

    value: float
    low: float
    high: float
    n: int
    seeds: tuple[float, ...]

    @property
    def estimate(self) -> Estimate:
        """As a cell of a table."""
        return Estimate(self.value, self.low, self.high)

    @property
    def wrong(self) -> float:
        """The share of wrong answers, or what it may be at most where none was seen."""
        return 1 - self.value if self.value < 1 else 1 - self.low


def place(what: str, length: int) -> str:
    """The key of a test in an outcome."""
    return f"{what}, length={length}"


def share(outcome: Outcome, what: str, *lengths: int) -> Share:
    """The share of right answers at these lengths together."""
    return pooled(outcome, [place(what, length) for length in lengths])


def pooled(outcome: Outcome, places: Sequence[str]) -> Share:
    """The share of right answers over these places together."""
    counts = [sum(seed) for seed in zip(*(outcome.right[one] for one in places), strict=True)]
    each = outcome.samples * len(places)
    trials = each * len(counts)
    low, high = binomial_interval(sum(counts), trials)
    return Share(sum(counts) / trials, low, high, trials, tuple(count / each for count in counts))


def binomial_interval(successes: int, trials: int) -> tuple[float, float]:
    """The exact 95 % interval of a share (Clopper and Pearson 1934): quantiles of beta laws."""
    from scipy.special import betaincinv

    failures = trials - successes
    low = float(betaincinv(successes, failures + 1, 0.025)) if successes else 0.0
    high = float(betaincinv(successes + 1, failures, 0.975)) if failures else 1.0
    return low, high


def over_seeds(values: Sequence[float]) -> Estimate:
    """The mean over seeds with Student's 95 % interval; none with fewer than three."""
    if len(values) < FEWEST_SEEDS:
        return Estimate(fmean(values))
    # Without a part of documents the quantile is Student's.
    found = seeds_and_documents([(value, 0.0, 2) for value in values])
    return Estimate(found.mean, *found.interval)


def difference(one: Share, other: Share) -> Estimate:
    """`one` - `other`, paired by seed."""
    paired = over_seeds([a - b for a, b in zip(one.seeds, other.seeds, strict=True)])
    return replace(paired, signed=True)


@dataclass(frozen=True)
class Case:
    """One case of a claim: its numbers in words, whether they confirm or contradict it, and whether it counts."""

    words: str
    holds: bool
    fails: bool
    counts: bool = True


def case(
    words: str, estimate: Estimate, level: float = 0.0, *, lower: bool = False, counts: bool = True
) -> Case:
    """Confirmed where the whole interval lies above the level (below it if `lower`), contradicted on the other side.

    Without an interval it is neither.
    """
    above = estimate.low is not None and estimate.low > level
    below = estimate.high is not None and estimate.high < level
    return Case(words, below if lower else above, above if lower else below, counts)


def verdict_on(
    cases: Iterable[Case], words: Callable[[int, int, int], str] | None = None, *, of: str = ""
) -> Decision:
    """All numbers, and a verdict on the cases that count: `words` of how many confirm, contradict, and are."""
    cases = list(cases)
    counted = [one for one in cases if one.counts]
    counts = sum(one.holds for one in counted), sum(one.fails for one in counted), len(counted)
    said = decision(*counts, of=of) if words is None else words(*counts) if counted else NOT_TRAINED
    return "; ".join(one.words for one in cases) or "none", said


def decision(holding: int, failing: int, tried: int, *, of: str = "") -> str:
    """Whether a claim holds in the cases that were tried; it fails where the interval contradicts it."""
    if not tried:
        return NOT_TRAINED
    if failing == tried:
        return FAILS
    if holding == tried:
        return f"holds for {holding} of {tried}{of}" if of else HOLDS
    said = f"holds for {holding} of {tried}{of}" if holding else NOT_DECIDED
    if failing and not holding:
        said = f"does not hold for {failing} of {tried}{of}"
    undecided = tried - holding - failing
    return f"{said}, {undecided} not decided" if undecided and undecided < tried else said
