"""The panels of section 3's figures as data, what the paper claims of each, and the rules that decide from numbers.

The rules `_stays` (with the tenth of the older rules), `_nearly_perfect` and `_best_function`, the demand that a
model be trained, and the demand that a rise come near to the best constant were written after the numbers with Adam
were known; the others before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from lengthwise_studies.claims import FAILS, HOLDS, NOT_DECIDED, NOT_TRAINED, Claim, Decision, Rule
from lengthwise_studies.section3.cells import Cell, Outcome
from lengthwise_studies.section3.grid import Outcomes, Spread, at_length, mean_errors, spread, two_digits

TESTED = 50
"""The longest test length of the paper."""
BEYOND = (20, 35, TESTED)
"""Lengths at which errors are compared with the best constant's."""
NEARLY_PERFECT_TO = 35
"""The length up to which the paper calls 1/sqrt nearly perfect (Sec. 3)."""
FEWEST_SEEDS = 4
"""All of three seeds lie above three others in 10 % of cases by chance, all of four in 3 %."""
PAPERS_ENCODINGS = ("none", "learned", "alibi", "rotary")
FITS = (
    "A model counts as trained if its median error in training range is under a tenth of the best constant's."
)
"""The error of a constant rises too, so a model that was not trained shows nothing."""


class Read:
    """What the rules read off a cell's outcome, in original units."""

    def __init__(self, cell: Cell, outcome: Outcome) -> None:
        self.within, self.beyond = map(spread, mean_errors(cell, outcome))
        self.end = at_length(outcome, TESTED)
        self.nearly = at_length(outcome, NEARLY_PERFECT_TO)
        plain = replace(cell, function="identity", shift=0)
        [self.constant] = plain.constant_errors([TESTED])
        self.shares_of_constant = [
            at_length(outcome, length).high / plain.constant_errors([length])[0] for length in BEYOND
        ]
        constant = fmean(plain.constant_errors(range(1, cell.train_length + 1)))
        self.trained = self.within.value < constant / 10
        """See `FITS`."""

    def ends_above(self, times: float, level: float = 0.0) -> bool:
        """Whether every seed errs at length 50 by more than so many times the median in training range."""
        return self.end.low > max(times * self.within.value, level)


Reads = Mapping[str, Read]
"""By what tells the cells of a claim apart; the first is what the others are compared with, where they are."""


@dataclass(frozen=True)
class Kind:
    """Claims that differ in panel, task and optimizer alone.

    Args:
        decide: our numbers and the verdict from what was read.
        says: in words, with a place for the task.
        rule: when it holds.
        paper: the number that the paper gives.
        only: which cells of the panel it is about; empty: all.
    """

    decide: Callable[[Reads], Decision]
    says: str
    rule: str
    paper: str = "drawn, no number"
    only: tuple[str, ...] = ()

    def decided(self, cells: Mapping[str, Cell], outcomes: Outcomes) -> Decision | None:
        """On its cells of these; None where one was not tested at the paper's lengths. Few seeds decide nothing."""
        found = {name: (one, outcomes[one]) for name, one in cells.items() if name in (self.only or cells)}
        if any(outcome.lengths[-1] < TESTED for _, outcome in found.values()):
            return None
        ours, verdict = self.decide({name: Read(*one) for name, one in found.items()})
        if min(len(outcome.mse) for _, outcome in found.values()) < FEWEST_SEEDS:
            verdict = f"{NOT_DECIDED}: fewer than {FEWEST_SEEDS} seeds"
        return ours, verdict


def _kind(**about: Any) -> Callable[[Callable[[Reads], Decision]], Kind]:
    """Make a kind of the function below, which decides."""
    return partial(Kind, **about)


@_kind(
    says="NoPE predicts the mean at length 50 far better than 1/2 does ({task})",
    only=("none",),
    rule="the worst seed's error at length 50 is under a tenth of the best constant's",
)
def _far_better(reads: Reads) -> Decision:
    [one] = reads.values()
    ours = f"{one.end.text}; best constant {two_digits(one.constant)}"
    return ours, HOLDS if one.end.high < one.constant / 10 else FAILS


@_kind(
    says="NoPE's error of the mean stays small beyond training ({task})",
    only=("none",),
    rule="at lengths 20, 35 and 50 every seed's error is under a tenth of the best constant's",
)
def _stays(reads: Reads) -> Decision:
    [one] = reads.values()
    worst = max(one.shares_of_constant)
    verdict = HOLDS if worst < 1 / 10 else FAILS
    ours = f"in range: {one.within.text}; at 50: {one.end.text}; worst share of a constant's: {two_digits(worst)}"
    return ours, verdict if one.trained else NOT_TRAINED


@_kind(
    says="the error of the {task} rises beyond training with each of the four encodings",
    only=PAPERS_ENCODINGS,
    rule="every seed's error at length 50 is over 100 times the median error in training range, and over a tenth "
    "of the best constant's",
)
def _rises(reads: Reads) -> Decision:
    trained = [one for one in reads.values() if one.trained]
    rising = sum(one.ends_above(100, one.constant / 10) for one in trained)
    verdict = f"holds for {rising} of {len(trained)} encodings{_untrained(reads)}"
    if not trained:
        verdict = NOT_TRAINED
    elif rising == len(reads):
        verdict = HOLDS
    return _listed({name: one.end for name, one in reads.items()}), verdict


@_kind(
    says="every f lowers the error of the {task} beyond training, in original units",
    paper="all f improve, 1/sqrt most",
    rule="better or worse: mean error beyond training, the seeds of f and of no f do not overlap",
)
def _reparameterized(reads: Reads) -> Decision:
    ours, verdict = _compared({name: one.beyond for name, one in reads.items()})
    return ours, verdict + _untrained(reads)


@_kind(
    says=f"1/sqrt is nearly perfect up to length {NEARLY_PERFECT_TO}",
    paper="nearly perfect",
    only=("1/sqrt",),
    rule=f"every seed's error at length {NEARLY_PERFECT_TO} is under 1/4, so that the nearest length is right",
)
def _nearly_perfect(reads: Reads) -> Decision:
    [one] = reads.values()
    verdict = HOLDS if one.nearly.high < 1 / 4 else FAILS
    return one.nearly.text, verdict if one.trained else NOT_TRAINED


@_kind(
    says="of all f, 1/sqrt lowers the error of the {task} most",
    paper="the best, also of 1/x and 1/log(x+1)",
    rule="mean error beyond training, the seeds of 1/sqrt do not overlap with those of any other f",
)
def _best_function(reads: Reads) -> Decision:
    found = {name: one.beyond for name, one in reads.items()}
    best = found.pop("1/sqrt")
    behind = [name for name, one in found.items() if best.high < one.low]
    ahead = [name for name, one in found.items() if one.high < best.low]
    verdict = HOLDS if len(behind) == len(found) else f"better than {', '.join(behind) or 'none'}"
    verdict += f"; worse than {', '.join(ahead)}" if ahead else ""
    return f"1/sqrt: {best.text}", verdict + _untrained(reads)


@_kind(
    says="training on longer strings lowers the error of the {task} at length 50, which still rises",
    rule="the seeds of each training length lie below those of the shorter one; every seed's error at length 50 "
    "is over 10 times the median in training range",
)
def _longer(reads: Reads) -> Decision:
    ends = {name: one.end for name, one in reads.items()}
    if not all(one.trained for one in reads.values()):
        return _listed(ends), NOT_TRAINED
    lower = all(longer.high < shorter.low for shorter, longer in pairwise(ends.values()))
    rising = all(one.ends_above(10) for one in reads.values())
    words = ("no", "yes")
    return _listed(ends), f"lower with length: {words[lower]}; still rising: {words[rising]}"


def _compared(found: Mapping[str, Spread]) -> Decision:
    """Which have all their seeds below, or above, all of the first."""
    (_, base), *others = found.items()
    better = [name for name, one in others if one.high < base.low]
    worse = [name for name, one in others if base.high < one.low]
    return _listed(found), f"better: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}"


def _listed(found: Mapping[str, Spread]) -> str:
    return "; ".join(f"{name}: {one.text}" for name, one in found.items())


def _untrained(reads: Reads) -> str:
    """A remark on the cells whose models did not learn the training range."""
    names = [name for name, one in reads.items() if not one.trained]
    return f"; {NOT_TRAINED}: {', '.join(names)}" if names else ""


TRAIN_LENGTHS = (5, 10, 20, 40)
"""Of Figure 3; the text of the paper does not name them."""
OPTIMIZERS = {"adam": "Adam", "sgd": "SGD, the paper's"}
OURS = ("randomised", "t5", "sinusoidal")
"""Encodings that the paper does not show, trained with Adam alone."""

Varied = Literal["encoding", "function", "train_length"]
CHANGES: dict[Varied, dict[str, dict[str, Any]]] = {
    "encoding": {name: {"encoding": name} for name in (*PAPERS_ENCODINGS, *OURS)},
    "function": {"no f": {}} | {f: {"function": f} for f in ("sqrt", "log", "1/sqrt", "1/x", "1/log(x+1)")},
    "train_length": {f"1..{length}": {"train_length": length} for length in TRAIN_LENGTHS},
}
"""What tells the cells of a panel apart, by name."""
_LABELS = {"none": "none (NoPE)", "alibi": "ALiBi", "t5": "T5 bias"}


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Args:
        name: figure and letter.
        title: what is predicted, and what differs between the curves.
        task: what is predicted.
        varies: what tells the curves of the panel apart.
        kinds: of claims that are judged on it.
        shift: of every f.
        optimizers: Adam, and the paper's own where it shows encodings or f.
    """

    name: str
    title: str
    task: str
    varies: Varied
    kinds: tuple[Kind, ...]
    shift: int = 0
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)

    def curves(self, optimizer: str) -> dict[str, Cell]:
        """The cells that differ in one thing, by its name."""
        blank = Cell(task=self.task, optimizer=optimizer)
        return {
            name: replace(blank, **change, shift=self.shift if "function" in change else 0)
            for name, change in CHANGES[self.varies].items()
            if optimizer == "adam" or name not in OURS
        }

    @property
    def cells(self) -> dict[Cell, str]:
        """One curve each, and what it is called."""
        named = [one for optimizer in self.optimizers for one in self.curves(optimizer).items()]
        return {cell: _LABELS.get(name, name) for name, cell in named}

    @property
    def claims(self) -> list[Claim]:
        """Each kind with each optimizer."""
        return [
            Claim(
                place=f"{self.name}, {optimizer}",
                says=kind.says.format(task=self.task),
                paper=kind.paper,
                test=Rule(kind.rule, partial(kind.decided, self.curves(optimizer))),
            )
            for kind in self.kinds
            for optimizer in self.optimizers
        ]


_MEAN = (replace(_far_better, paper="about 1e-5"), replace(_stays, paper="nearly consistent"))
_BY_FUNCTION = (_reparameterized, _nearly_perfect, _best_function)
_UNIFORM = "Mean, with a uniform number of ones, by encoding"
FIGURES: dict[str, tuple[Panel, ...]] = {
    "figure1": (
        Panel("1a", "Mean, by encoding", "mean", "encoding", _MEAN),
        Panel("1b", "Length, by encoding", "length", "encoding", (_rises,)),
        Panel("1c", "Length, by reparameterization f", "length", "function", _BY_FUNCTION),
    ),
    "figure3": (
        Panel("3a", "Sum, by training length", "sum", "train_length", (_longer,), optimizers=("adam",)),
        Panel("3b", "Length, by training length", "length", "train_length", (_longer,), optimizers=("adam",)),
    ),
    "figure4": (
        Panel("4a", "Sum, by encoding", "sum", "encoding", (_rises,)),
        Panel("4b", "Sum, by reparameterization f of y + 1", "sum", "function", (_reparameterized,), shift=1),
    ),
    "figure5": (Panel("5", _UNIFORM, "uniform-count-mean", "encoding", (_far_better, _stays)),),
}
