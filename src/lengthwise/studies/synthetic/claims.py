"""What the paper claims of its figures, held against our numbers by rules fixed beforehand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise

from lengthwise.report.tables import Table
from lengthwise.studies.synthetic.figures import (
    ALIGNMENTS,
    FUNCTIONS,
    PAPERS_ENCODINGS,
    TRAIN_LENGTHS,
    WEIGHTS,
)
from lengthwise.studies.synthetic.rows import Spread, at_length, beyond, spread, text, two_digits, within
from lengthwise.studies.synthetic.run import Outcomes, baselines
from lengthwise.synthetic.cells import Cell
from lengthwise.synthetic.sweep import Number, Outcome

TESTED = 50
"""The longest test length of the paper."""

Verdict = tuple[str, str]
"""Our numbers in words, and whether the claim holds in them."""


@dataclass(frozen=True)
class Claim:
    """One statement of the paper.

    Args:
        panel: where it is made.
        claim: in short.
        paper: the number that the paper gives; "none" where it only draws one.
        cells: what has to have been run.
        judge: our numbers and the verdict; it may count on `cells` being there.
        rule: when it holds.
    """

    panel: str
    claim: str
    paper: str
    cells: tuple[Cell, ...]
    judge: Callable[[Outcomes], Verdict]
    rule: str


def claims_table(outcomes: Outcomes, panels: Collection[str] | None = None) -> Table | None:
    """Every claim (of these panels) whose cells were run and tested at the paper's lengths; None if there is none."""
    rows = []
    for claim in CLAIMS:
        if panels is not None and claim.panel not in panels:
            continue
        if all(cell in outcomes and outcomes[cell].lengths[-1] >= TESTED for cell in claim.cells):
            ours, verdict = claim.judge(outcomes)
            rows.append([claim.panel, claim.claim, claim.paper, ours, verdict, claim.rule])
    columns = ["panel", "claim", "paper", "ours, median over seeds [best, worst]", "verdict", "rule"]
    return Table(columns=columns, rows=rows, caption="The paper's claims") if rows else None


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

    return Claim(
        "5" if task.startswith("uniform") else "1a",
        f"NoPE predicts the mean at length 50 far better than 1/2 does ({task}, {optimizer})",
        "about 1e-5" if task == "mean" else "none",
        (cell,),
        judge,
        "the worst seed's error at length 50 is under a tenth of the best constant's",
    )


def _rises(panel: str, task: str, optimizer: str) -> Claim:
    cells = tuple(Cell(task=task, encoding=name, optimizer=optimizer) for name in PAPERS_ENCODINGS)

    def judge(outcomes: Outcomes) -> Verdict:
        inside = {cell.encoding: spread(within(cell, outcomes[cell])).value for cell in cells}
        ends = {cell.encoding: at_length(outcomes[cell], TESTED) for cell in cells}
        ours = "; ".join(f"{name}: {text(end)}" for name, end in ends.items())
        rise = [
            end.low is not None and (start := inside[name]) is not None and end.low > 100 * start
            for name, end in ends.items()
        ]
        return ours, "holds" if all(rise) else f"holds for {sum(rise)} of {len(rise)} encodings"

    return Claim(
        panel,
        f"the error of the {task} rises beyond training with each of the four encodings ({optimizer})",
        "none",
        cells,
        judge,
        "every seed's error at length 50 is over 100 times the median error in training range",
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
        return ours, _better_and_worse(base, found)

    return Claim(
        panel,
        f"every f lowers the error of the {task} beyond training, in original units ({optimizer})",
        "all f improve, 1/sqrt most",
        (plain, *others),
        judge,
        "better or worse: mean error beyond training, the seeds of f and of no f do not overlap",
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

    return Claim(
        f"aligned-{task}",
        claim,
        "none: not tried on these tasks",
        (plain, *others.values()),
        judge,
        f"better or worse: mean error {where}, the seeds with and without alignment do not overlap",
    )


def _better_and_worse(base: Spread, found: Mapping[str, Spread]) -> str:
    """Which of `found` have all their seeds below, or above, all of `base`; a diverged median is worse."""
    better = [
        name
        for name, one in found.items()
        if one.high is not None and base.low is not None and one.high < base.low
    ]
    worse = [
        name
        for name, one in found.items()
        if one.low is None or (base.high is not None and one.low > base.high)
    ]
    return f"better: {', '.join(better) or 'none'}; worse: {', '.join(worse) or 'none'}"


def _longer(panel: str, task: str) -> Claim:
    cells = tuple(Cell(task=task, train_length=length) for length in TRAIN_LENGTHS)

    def judge(outcomes: Outcomes) -> Verdict:
        ends = [at_length(outcomes[cell], TESTED) for cell in cells]
        inside = [spread(within(cell, outcomes[cell])).value for cell in cells]
        ours = "; ".join(
            f"1..{cell.train_length}: {text(end)}" for cell, end in zip(cells, ends, strict=True)
        )
        values = [end.value for end in ends]
        lower = all(b is not None and a is not None and b < a for a, b in pairwise(values))
        rises = all(
            end.low is not None and start is not None and end.low > 10 * start
            for end, start in zip(ends, inside, strict=True)
        )
        return (
            ours,
            f"lower with length: {'yes' if lower else 'no'}; still rising: {'yes' if rises else 'no'}",
        )

    return Claim(
        panel,
        f"training on longer strings lowers the error of the {task} at length 50, which still rises",
        "none",
        cells,
        judge,
        "medians fall with each training length; every seed's error at the end is over 10 times that in range",
    )


CLAIMS: tuple[Claim, ...] = (
    *(_nope_mean("mean", optimizer) for optimizer in ("adam", "sgd")),
    *(_rises("1b", "length", optimizer) for optimizer in ("adam", "sgd")),
    *(_reparameterized("1c", "length", 0, optimizer) for optimizer in ("adam", "sgd")),
    _longer("3a", "sum"),
    _longer("3b", "length"),
    *(_rises("4a", "sum", optimizer) for optimizer in ("adam", "sgd")),
    *(_reparameterized("4b", "sum", 1, optimizer) for optimizer in ("adam", "sgd")),
    *(_nope_mean("uniform-count-mean", optimizer) for optimizer in ("adam", "sgd")),
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
