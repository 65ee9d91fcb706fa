"""What the paper claims of the figures of section 3, as data, and the rules that decide from our numbers.

The rules `_stays`, `_nearly_perfect` and `_best_function`, the demand that a model be trained, and the demand that
a rise come near to the best constant were written after the numbers with Adam were known; the others before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from lengthwise.report.tables import Table
from lengthwise_studies.claims import (
    FAILS,
    HOLDS,
    NOT_DECIDED,
    NOT_TRAINED,
    Claim,
    Decision,
    Found,
    judge,
    verdict_table,
)
from lengthwise_studies.section3.cells import Cell, Outcome
from lengthwise_studies.section3.grid import (
    Outcomes,
    Spread,
    at_length,
    best_constant_errors,
    beyond,
    spread,
    two_digits,
    within,
)
from lengthwise_studies.section3.panels import OPTIMIZERS, PAPERS_ENCODINGS, Varied, curves

TESTED = 50
"""The longest test length of the paper."""
NEARLY_PERFECT_TO = 35
"""The length up to which the paper calls 1/sqrt nearly perfect (Sec. 3)."""
FEWEST_SEEDS = 4
"""All of three seeds lie above three others in 10 % of cases by chance, all of four in 3 %."""
DRAWN = "drawn, no number"
FITS = (
    "A model counts as trained if its median error in training range is under a tenth of the best constant's."
)
"""The error of a constant rises too, so a model that was not trained shows nothing."""


class Read:
    """A cell and what the rules read off its outcome, in original units."""

    def __init__(self, cell: Cell, outcome: Outcome) -> None:
        self.cell = cell
        self.within = spread(within(cell, outcome))
        self.beyond = spread(beyond(cell, outcome))
        self.end = at_length(outcome, TESTED)
        self.nearly = at_length(outcome, NEARLY_PERFECT_TO)
        plain = replace(cell, function="identity", shift=0)
        [self.constant] = best_constant_errors(plain, [TESTED])
        constant = fmean(best_constant_errors(plain, range(1, cell.train_length + 1)))
        self.trained = self.within.value is not None and self.within.value < constant / 10
        """See `FITS`."""

    def ends_above(self, times: float, level: float = 0.0) -> bool:
        """Whether every seed errs at length 50 by more than so many times the median in training range."""
        if self.end.low is None:
            return True
        return self.within.value is not None and self.end.low > max(times * self.within.value, level)


Reads = Mapping[str, Read]
"""By what tells the cells of a claim apart; the first is what the others are compared with, where they are."""


@dataclass(frozen=True)
class CellRule:
    """A rule on cells, which decides where all of them were run and tested at the paper's lengths."""

    rule: str
    decide: Callable[[Reads], Decision]
    cells: Mapping[str, Cell]

    def __call__(self, numbers: Outcomes) -> Found | None:
        """Our numbers and the verdict; None where a cell is missing. Few seeds decide nothing."""
        found = {name: (cell, numbers[cell]) for name, cell in self.cells.items() if cell in numbers}
        if len(found) < len(self.cells) or any(one.lengths[-1] < TESTED for _, one in found.values()):
            return None
        ours, verdict = self.decide({name: Read(*one) for name, one in found.items()})
        if min(len(one.mse) for _, one in found.values()) < FEWEST_SEEDS:
            verdict = f"{NOT_DECIDED}: fewer than {FEWEST_SEEDS} seeds"
        return Found(ours=ours, verdict=verdict, rule=self.rule)


def section3_claims_table(outcomes: Outcomes, panels: Collection[str] | None = None) -> Table:
    """Every claim (of these panels) whose cells were run and tested at the paper's lengths."""
    chosen = [claim for claim in CLAIMS if panels is None or claim.place in panels]
    judged = judge(chosen, outcomes)
    return verdict_table(judged, ours="ours, median over seeds [best, worst]", notes=[FITS])


def _far_better(reads: Reads) -> Decision:
    [one] = reads.values()
    holds = one.end.high is not None and one.end.high < one.constant / 10
    return f"{one.end.text}; best constant {two_digits(one.constant)}", _holds(holds)


def _stays(reads: Reads) -> Decision:
    [one] = reads.values()
    stays = one.end.high is not None and one.within.value is not None and one.end.high < 10 * one.within.value
    ours = f"in range: {one.within.text}; at 50: {one.end.text}"
    return ours, _holds(stays) if one.trained else NOT_TRAINED


def _rises(reads: Reads) -> Decision:
    trained = [one for one in reads.values() if one.trained]
    rising = sum(one.ends_above(100, one.constant / 10) for one in trained)
    verdict = f"holds for {rising} of {len(trained)} encodings{_untrained(reads)}"
    if not trained:
        verdict = NOT_TRAINED
    elif rising == len(reads):
        verdict = HOLDS
    return _listed({name: one.end for name, one in reads.items()}), verdict


def _nearly_perfect(reads: Reads) -> Decision:
    [one] = reads.values()
    holds = one.nearly.high is not None and one.nearly.high < 1 / 4
    return one.nearly.text, _holds(holds) if one.trained else NOT_TRAINED


def _best_function(reads: Reads) -> Decision:
    found = {name: one.beyond for name, one in reads.items()}
    best = found.pop("1/sqrt")
    behind = [name for name, one in found.items() if best.below(one)]
    ahead = [name for name, one in found.items() if one.below(best)]
    verdict = HOLDS if len(behind) == len(found) else f"better than {', '.join(behind) or 'none'}"
    verdict += f"; worse than {', '.join(ahead)}" if ahead else ""
    return f"1/sqrt: {best.text}", verdict + _untrained(reads)


def _longer(reads: Reads) -> Decision:
    ends = {name: one.end for name, one in reads.items()}
    if not all(one.trained for one in reads.values()):
        return _listed(ends), NOT_TRAINED
    lower = all(longer.below(shorter) for shorter, longer in pairwise(ends.values()))
    rises = all(one.ends_above(10) for one in reads.values())
    words = ("no", "yes")
    return _listed(ends), f"lower with length: {words[lower]}; still rising: {words[rises]}"


def _beyond(reads: Reads) -> Decision:
    return _compared({name: one.beyond for name, one in reads.items()})


def _within(reads: Reads) -> Decision:
    return _compared({name: one.within for name, one in reads.items()})


def _functions(reads: Reads) -> Decision:
    ours, verdict = _beyond(reads)
    return ours, verdict + _untrained(reads)


def _compared(found: Mapping[str, Spread]) -> Decision:
    """Which have all their seeds below, or above, all of the first."""
    base, *others = found.items()
    better = [name for name, one in others if one.below(base[1])]
    worse = [name for name, one in others if base[1].below(one)]
    return _listed(found), f"better: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}"


def _listed(found: Mapping[str, Spread]) -> str:
    return "; ".join(f"{name}: {one.text}" for name, one in found.items())


def _untrained(reads: Reads) -> str:
    """A remark on the cells whose models did not learn the training range."""
    names = [name for name, one in reads.items() if not one.trained]
    return f"; {NOT_TRAINED}: {', '.join(names)}" if names else ""


def _holds(holds: bool) -> str:
    return HOLDS if holds else FAILS


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Claims that differ in panel, task and optimizer alone.

    Args:
        claim: in words, with places for the task and the optimizer.
        paper: the number that the paper gives.
        varies: what its cells differ in.
        only: which of them it is about; empty: all.
        decide: our numbers and the verdict from what was read.
        rule: when it holds.
        optimizers: with which it is judged.
    """

    claim: str
    paper: str = DRAWN
    varies: Varied
    only: tuple[str, ...] = ()
    decide: Callable[[Reads], Decision]
    rule: str
    optimizers: tuple[str, ...] = OPTIMIZERS


FAR_BETTER = Kind(
    claim="NoPE predicts the mean at length 50 far better than 1/2 does ({task}, {optimizer})",
    varies="encoding",
    only=("none",),
    decide=_far_better,
    rule="the worst seed's error at length 50 is under a tenth of the best constant's",
)
STAYS = Kind(
    claim="NoPE's error of the mean stays as it is in training range ({task}, {optimizer})",
    varies="encoding",
    only=("none",),
    decide=_stays,
    rule="every seed's error at length 50 is under 10 times the median error in training range",
)
RISES = Kind(
    claim="the error of the {task} rises beyond training with each of the four encodings ({optimizer})",
    varies="encoding",
    only=PAPERS_ENCODINGS,
    decide=_rises,
    rule="every seed's error at length 50 is over 100 times the median error in training range, and over a tenth "
    "of the best constant's",
)
REPARAMETERIZED = Kind(
    claim="every f lowers the error of the {task} beyond training, in original units ({optimizer})",
    paper="all f improve, 1/sqrt most",
    varies="function",
    decide=_functions,
    rule="better or worse: mean error beyond training, the seeds of f and of no f do not overlap",
)
NEARLY_PERFECT = Kind(
    claim=f"1/sqrt is nearly perfect up to length {NEARLY_PERFECT_TO} ({{optimizer}})",
    paper="nearly perfect",
    varies="function",
    only=("1/sqrt",),
    decide=_nearly_perfect,
    rule=f"every seed's error at length {NEARLY_PERFECT_TO} is under 1/4, so that the nearest length is right",
)
BEST_FUNCTION = Kind(
    claim="of all f, 1/sqrt lowers the error of the {task} most ({optimizer})",
    paper="the best, also of 1/x and 1/log(x+1)",
    varies="function",
    decide=_best_function,
    rule="mean error beyond training, the seeds of 1/sqrt do not overlap with those of any other f",
)
LONGER = Kind(
    claim="training on longer strings lowers the error of the {task} at length 50, which still rises",
    varies="train_length",
    decide=_longer,
    rule="the seeds of each training length lie below those of the shorter one; every seed's error at length 50 "
    "is over 10 times the median in training range",
    optimizers=("adam",),
)
ALIGNED = Kind(
    claim="alignment lowers the error of the {task} beyond training",
    paper="none: not tried on these tasks",
    varies="alignment",
    decide=_beyond,
    rule="better or worse: mean error beyond training, the seeds with and without alignment do not overlap",
    optimizers=("adam",),
)
ALIGNED_WITHIN = replace(
    ALIGNED,
    claim="alignment keeps the error of the {task} in training range",
    decide=_within,
    rule="better or worse: mean error in training range, the seeds with and without alignment do not overlap",
)


def _claims(
    place: str, task: str, kind: Kind, *, paper: str | None = None, shift: int = 0
) -> Iterator[Claim]:
    """The claim with each of its optimizers."""
    for optimizer in kind.optimizers:
        cells = curves(task, kind.varies, shift=shift, optimizer=optimizer)
        chosen = {name: cell for name, cell in cells.items() if name in (kind.only or cells)}
        yield Claim(
            place=place,
            says=kind.claim.format(task=task, optimizer=optimizer),
            paper=paper or kind.paper,
            test=CellRule(kind.rule, kind.decide, chosen),
        )


CLAIMS: tuple[Claim, ...] = (
    *_claims("1a", "mean", FAR_BETTER, paper="about 1e-5"),
    *_claims("1a", "mean", STAYS, paper="nearly consistent"),
    *_claims("1b", "length", RISES),
    *_claims("1c", "length", REPARAMETERIZED),
    *_claims("1c", "length", NEARLY_PERFECT),
    *_claims("1c", "length", BEST_FUNCTION),
    *_claims("3a", "sum", LONGER),
    *_claims("3b", "length", LONGER),
    *_claims("4a", "sum", RISES),
    *_claims("4b", "sum", REPARAMETERIZED, shift=1),
    *_claims("5", "uniform-count-mean", FAR_BETTER),
    *_claims("5", "uniform-count-mean", STAYS),
    *(
        claim
        for task in ("mean", "length", "sum")
        for kind in (ALIGNED, ALIGNED_WITHIN)
        for claim in _claims(f"aligned-{task}", task, kind)
    ),
)
