"""What the paper claims of the figures of section 3, and the rules that decide on each claim from our numbers.

The rules of `_stays`, `_nearly_perfect` and `_best_function`, the demand that a model be trained, and the demand that
a rise come near to the best constant were written after the numbers with Adam were known; the others before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean

from lengthwise.report.tables import Table
from lengthwise_studies.section3.cells import Cell, Number, Outcome
from lengthwise_studies.section3.grid import (
    Outcomes,
    Spread,
    at_length,
    baselines,
    beyond,
    spread,
    text,
    two_digits,
    within,
)
from lengthwise_studies.section3.panels import ALIGNMENTS, FUNCTIONS, PAPERS_ENCODINGS, TRAIN_LENGTHS, WEIGHTS
from lengthwise_studies.skeleton import Claim, Verdict, claims_table

TESTED = 50
"""The longest test length of the paper."""
NEARLY_PERFECT_TO = 35
"""The length up to which the paper calls 1/sqrt nearly perfect (Sec. 3)."""

FEWEST_SEEDS = 4
"""All of three seeds lie above three others in 10 % of cases by chance, all of four in 3 %."""

DRAWN = "drawn, no number"
NOT_TRAINED = "says nothing: not trained"
FITS = (
    "A model counts as trained if its median error in training range is under a tenth of the best constant's."
)
"""The error of a constant rises too, so a model that was not trained shows nothing."""


@dataclass(frozen=True, kw_only=True)
class CellClaim(Claim):
    """A claim about cells, decided where all of them were run and tested at the paper's lengths."""

    cells: tuple[Cell, ...]

    def verdict(self, numbers: Outcomes) -> Verdict | None:
        """Our numbers and whether the claim holds; None where a cell is missing. Few seeds decide nothing."""
        if not all(cell in numbers and numbers[cell].lengths[-1] >= TESTED for cell in self.cells):
            return None
        found = self.judge(numbers)
        seeds = min(len(numbers[cell].mse) for cell in self.cells)
        if found is None or seeds >= FEWEST_SEEDS:
            return found
        return found[0], f"not decided: fewer than {FEWEST_SEEDS} seeds"


def section3_claims_table(outcomes: Outcomes, panels: Collection[str] | None = None) -> Table | None:
    """Every claim (of these panels) whose cells were run and tested at the paper's lengths; None if there is none."""
    chosen = [claim for claim in CLAIMS if panels is None or claim.place in panels]
    return claims_table(chosen, outcomes, ours="ours, median over seeds [best, worst]", notes=[FITS])


def _nope_mean(task: str, optimizer: str) -> Claim:
    cell = Cell(task=task, optimizer=optimizer)

    def judge(outcomes: Outcomes) -> Verdict:
        over = at_length(outcomes[cell], TESTED)
        constant, _, _ = baselines(cell, [TESTED])
        holds = over.high is not None and over.high < constant[-1] / 10
        return (
            f"{text(over)}; best constant {two_digits(constant[-1])}",
            "holds" if holds else "does not hold",
        )

    return CellClaim(
        place="5" if task.startswith("uniform") else "1a",
        claim=f"NoPE predicts the mean at length 50 far better than 1/2 does ({task}, {optimizer})",
        paper="about 1e-5" if task == "mean" else DRAWN,
        cells=(cell,),
        judge=judge,
        rule="the worst seed's error at length 50 is under a tenth of the best constant's",
    )


def _stays(task: str, optimizer: str) -> Claim:
    cell = Cell(task=task, optimizer=optimizer)

    def judge(outcomes: Outcomes) -> Verdict:
        inside, end = spread(within(cell, outcomes[cell])), at_length(outcomes[cell], TESTED)
        ours = f"in range: {text(inside)}; at 50: {text(end)}"
        if not _fits(cell, outcomes[cell]):
            return ours, NOT_TRAINED
        stays = end.high is not None and inside.value is not None and end.high < 10 * inside.value
        return ours, "holds" if stays else "does not hold"

    return CellClaim(
        place="5" if task.startswith("uniform") else "1a",
        claim=f"NoPE's error of the mean stays as it is in training range ({task}, {optimizer})",
        paper="nearly consistent" if task == "mean" else DRAWN,
        cells=(cell,),
        judge=judge,
        rule="every seed's error at length 50 is under 10 times the median error in training range",
    )


def _rises(panel: str, task: str, optimizer: str) -> Claim:
    cells = tuple(Cell(task=task, encoding=name, optimizer=optimizer) for name in PAPERS_ENCODINGS)

    def judge(outcomes: Outcomes) -> Verdict:
        ours, rising, untrained = [], [], []
        for cell in cells:
            end, inside = at_length(outcomes[cell], TESTED), spread(within(cell, outcomes[cell])).value
            constant, _, _ = baselines(cell, [TESTED])
            ours.append(f"{cell.encoding}: {text(end)}")
            if not _fits(cell, outcomes[cell]):
                untrained.append(cell.encoding)
            elif end.low is None or (inside is not None and end.low > max(100 * inside, constant[-1] / 10)):
                rising.append(cell.encoding)
        trained = len(cells) - len(untrained)
        if not trained:
            verdict = NOT_TRAINED
        elif trained < len(cells):
            verdict = f"holds for {len(rising)} of {trained} encodings; {NOT_TRAINED}: {', '.join(untrained)}"
        else:
            verdict = "holds" if len(rising) == trained else f"holds for {len(rising)} of {trained} encodings"
        return "; ".join(ours), verdict

    return CellClaim(
        place=panel,
        claim=f"the error of the {task} rises beyond training with each of the four encodings ({optimizer})",
        paper=DRAWN,
        cells=cells,
        judge=judge,
        rule="every seed's error at length 50 is over 100 times the median error in training range, and over a tenth "
        "of the best constant's",
    )


def _reparameterized(panel: str, task: str, shift: int, optimizer: str) -> Claim:
    plain = Cell(task=task, optimizer=optimizer)
    others = tuple(
        Cell(task=task, function=name, shift=shift, optimizer=optimizer)
        for name in FUNCTIONS
        if name != "identity"
    )

    def judge(outcomes: Outcomes) -> Verdict:
        base = spread(beyond(plain, outcomes[plain]))
        found = {cell.function: spread(beyond(cell, outcomes[cell])) for cell in others}
        ours = "; ".join(f"{name}: {text(one)}" for name, one in {"no f": base, **found}.items())
        return ours, _better_and_worse(base, found) + _untrained((plain, *others), outcomes)

    return CellClaim(
        place=panel,
        claim=f"every f lowers the error of the {task} beyond training, in original units ({optimizer})",
        paper="all f improve, 1/sqrt most",
        cells=(plain, *others),
        judge=judge,
        rule="better or worse: mean error beyond training, the seeds of f and of no f do not overlap",
    )


def _nearly_perfect(optimizer: str) -> Claim:
    cell = Cell(task="length", function="1/sqrt", optimizer=optimizer)

    def judge(outcomes: Outcomes) -> Verdict:
        end = at_length(outcomes[cell], NEARLY_PERFECT_TO)
        if not _fits(cell, outcomes[cell]):
            return text(end), NOT_TRAINED
        return text(end), "holds" if end.high is not None and end.high < 1 / 4 else "does not hold"

    return CellClaim(
        place="1c",
        claim=f"1/sqrt is nearly perfect up to length {NEARLY_PERFECT_TO} ({optimizer})",
        paper="nearly perfect",
        cells=(cell,),
        judge=judge,
        rule=f"every seed's error at length {NEARLY_PERFECT_TO} is under 1/4, so that the nearest length is right",
    )


def _best_function(optimizer: str) -> Claim:
    cells = {
        "no f" if name == "identity" else name: Cell(task="length", function=name, optimizer=optimizer)
        for name in FUNCTIONS
    }

    def judge(outcomes: Outcomes) -> Verdict:
        found = {name: spread(beyond(cell, outcomes[cell])) for name, cell in cells.items()}
        best = found.pop("1/sqrt")
        behind = [name for name, one in found.items() if _below(best, one)]
        ahead = [name for name, one in found.items() if _below(one, best)]
        verdict = "holds" if len(behind) == len(found) else f"better than {', '.join(behind) or 'none'}"
        verdict += f"; worse than {', '.join(ahead)}" if ahead else ""
        return f"1/sqrt: {text(best)}", verdict + _untrained(tuple(cells.values()), outcomes)

    return CellClaim(
        place="1c",
        claim=f"of all f, 1/sqrt lowers the error of the length most ({optimizer})",
        paper="the best, also of 1/x and 1/log(x+1)",
        cells=tuple(cells.values()),
        judge=judge,
        rule="mean error beyond training, the seeds of 1/sqrt do not overlap with those of any other f",
    )


def _aligned(task: str, errors: Callable[[Cell, Outcome], list[Number]], where: str, claim: str) -> Claim:
    plain = Cell(task=task)
    others = {
        f"{name} {weight:g}": Cell(task=task, alignment=name, weight=weight)
        for name in ALIGNMENTS
        for weight in WEIGHTS
    }

    def judge(outcomes: Outcomes) -> Verdict:
        base = spread(errors(plain, outcomes[plain]))
        found = {name: spread(errors(cell, outcomes[cell])) for name, cell in others.items()}
        ours = "; ".join(f"{name}: {text(one)}" for name, one in {"none": base, **found}.items())
        return ours, _better_and_worse(base, found)

    return CellClaim(
        place=f"aligned-{task}",
        claim=claim,
        paper="none: not tried on these tasks",
        cells=(plain, *others.values()),
        judge=judge,
        rule=f"better or worse: mean error {where}, the seeds with and without alignment do not overlap",
    )


def _better_and_worse(base: Spread, found: Mapping[str, Spread]) -> str:
    """Which of `found` have all their seeds below, or above, all of `base`."""
    better = [name for name, one in found.items() if _below(one, base)]
    worse = [name for name, one in found.items() if _below(base, one)]
    return f"better: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}"


def _below(one: Spread, other: Spread) -> bool:
    """Whether every seed of one lies below every seed of the other; a diverged model is above all numbers."""
    return one.high is not None and (other.low is None or one.high < other.low)


def _fits(cell: Cell, outcome: Outcome) -> bool:
    """Whether the training range was learned, see `FITS`."""
    inside = spread(within(cell, outcome)).value
    plain = replace(cell, function="identity", shift=0)
    constant, _, _ = baselines(plain, range(1, cell.train_length + 1))
    return inside is not None and inside < fmean(constant) / 10


def _untrained(cells: Collection[Cell], outcomes: Outcomes) -> str:
    """A remark on the functions whose models did not learn the training range."""
    names = [
        "no f" if cell.function == "identity" else cell.function
        for cell in cells
        if not _fits(cell, outcomes[cell])
    ]
    return f"; {NOT_TRAINED}: {', '.join(names)}" if names else ""


def _longer(panel: str, task: str) -> Claim:
    cells = tuple(Cell(task=task, train_length=length) for length in TRAIN_LENGTHS)

    def judge(outcomes: Outcomes) -> Verdict:
        ends = [at_length(outcomes[cell], TESTED) for cell in cells]
        inside = [spread(within(cell, outcomes[cell])).value for cell in cells]
        ours = "; ".join(
            f"1..{cell.train_length}: {text(end)}" for cell, end in zip(cells, ends, strict=True)
        )
        if not all(_fits(cell, outcomes[cell]) for cell in cells):
            return ours, NOT_TRAINED
        lower = all(_below(longer, shorter) for shorter, longer in pairwise(ends))
        rises = all(
            end.low is None or (start is not None and end.low > 10 * start)
            for end, start in zip(ends, inside, strict=True)
        )
        return (
            ours,
            f"lower with length: {'yes' if lower else 'no'}; still rising: {'yes' if rises else 'no'}",
        )

    return CellClaim(
        place=panel,
        claim=f"training on longer strings lowers the error of the {task} at length 50, which still rises",
        paper=DRAWN,
        cells=cells,
        judge=judge,
        rule="the seeds of each training length lie below those of the shorter one; every seed's error at length 50 "
        "is over 10 times the median in training range",
    )


CLAIMS: tuple[Claim, ...] = (
    *(_nope_mean("mean", optimizer) for optimizer in ("adam", "sgd")),
    *(_stays("mean", optimizer) for optimizer in ("adam", "sgd")),
    *(_rises("1b", "length", optimizer) for optimizer in ("adam", "sgd")),
    *(_reparameterized("1c", "length", 0, optimizer) for optimizer in ("adam", "sgd")),
    *(_nearly_perfect(optimizer) for optimizer in ("adam", "sgd")),
    *(_best_function(optimizer) for optimizer in ("adam", "sgd")),
    _longer("3a", "sum"),
    _longer("3b", "length"),
    *(_rises("4a", "sum", optimizer) for optimizer in ("adam", "sgd")),
    *(_reparameterized("4b", "sum", 1, optimizer) for optimizer in ("adam", "sgd")),
    *(_nope_mean("uniform-count-mean", optimizer) for optimizer in ("adam", "sgd")),
    *(_stays("uniform-count-mean", optimizer) for optimizer in ("adam", "sgd")),
    *(
        claim
        for task in ("mean", "length", "sum")
        for claim in (
            _aligned(
                task, beyond, "beyond training", f"alignment lowers the error of the {task} beyond training"
            ),
            _aligned(
                task,
                within,
                "in training range",
                f"alignment keeps the error of the {task} in training range",
            ),
        )
    ),
)
