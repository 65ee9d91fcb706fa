"""Claims: a statement, the test that decides it, the verdict, and the table of verdicts. There is one kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from lengthwise.measure.difference import holm_corrected
from lengthwise.report.tables import Cell, Table
from lengthwise.results import SIGNIFICANCE

REPRODUCED, OPPOSITE, OUTSIDE = "reproduced", "opposite at this scale", "outside the margin"
NOISE, NOT_RUN = "not distinguishable from noise", "not run"
"""These five are the verdicts of a test with a p value; the third is of a claim that two arms do the same."""
HOLDS, FAILS, NOT_DECIDED = "holds", "does not hold", "not decided"
NOT_TRAINED = "says nothing: not trained"
"""The verdicts of a rule; of several cases it says in how many the claim holds."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a test found.

    Args:
        verdict: of a test with a p value: if it is more than noise.
        ours: the number with its interval, or numbers in words.
        what, unit: the tested number in words, and its unit.
        rule: when the claim holds.
        n: models.
        p: before Holm's correction; None for a rule.
        detectable: the smallest effect that would have been seen among so many tests.
        why: for NOT_RUN: what is missing; for NOISE: the p value before the correction if that alone decides.
    """

    verdict: str
    ours: Cell = None
    what: str = ""
    unit: str = ""
    rule: str = ""
    n: int | None = None
    p: float | None = None
    detectable: Callable[[int], float | None] = field(default=lambda tests: None)
    why: str = ""


Test = Callable[[Any], Found | None]
"""Decides on numbers (rows, outcomes, ...); None where they hold nothing about the claim."""
T = TypeVar("T", bound=Test, covariant=True)
Decision = tuple[str, str]
"""Our numbers in words, and the verdict."""


@dataclass(frozen=True)
class Rule:
    """A test without a p value: when the claim holds, in words, and the function that decides it."""

    rule: str
    decide: Callable[[Any], Decision | None]

    def __call__(self, numbers: Any) -> Found | None:
        """Our numbers and the verdict."""
        decision = self.decide(numbers)
        return None if decision is None else Found(ours=decision[0], verdict=decision[1], rule=self.rule)


@dataclass(frozen=True, kw_only=True)
class Claim(Generic[T]):
    """One statement of a paper, or our own.

    Args:
        place, source: the table, panel or answer that makes it; section, page and line of the paper's text.
        says: the statement, in short.
        test: how numbers decide it.
        paper: the paper's number; "" for a claim of our own.
    """

    place: str
    says: str
    test: T
    source: str = ""
    paper: str = ""


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with its verdict; `p` is after Holm's correction, `detectable` what its table would have shown."""

    claim: Claim
    found: Found
    verdict: str
    p: float | None
    detectable: float | None


def judge(claims: Iterable[Claim], numbers: Any) -> list[Judged]:
    """A verdict on every claim of a table that the numbers are about. Holm's correction is over those with a p.

    A difference that is more than noise by itself and not among the tests of its table says so.
    """
    found = [(claim, one) for claim in claims if (one := claim.test(numbers)) is not None]
    corrected = holm_corrected([one.p for _, one in found])
    tests = sum(p is not None for p in corrected)
    judged: list[Judged] = []
    for (claim, one), p in zip(found, corrected, strict=True):
        verdict = NOISE if p is not None and p >= SIGNIFICANCE else one.verdict
        if verdict == NOISE and one.p is not None and one.p < SIGNIFICANCE:
            one = replace(one, why=f"{one.verdict} by itself (p = {one.p:.2g}), not among {tests} tests")
        found_of = {"claim": claim, "found": one, "verdict": verdict}
        judged.append(Judged(**found_of, p=p, detectable=one.detectable(tests)))
    return judged


def verdict_table(
    judged: Sequence[Judged],
    *,
    caption: str = "The paper's claims",
    ours: str = "ours",
    more: Mapping[str, Sequence[Cell]] | None = None,
    notes: Sequence[str] = (),
) -> Table:
    """One line for each claim. Columns in which no claim has anything are left out. `ours` heads our numbers.

    `more` are columns beside the verdict.
    """
    columns: dict[str, Sequence[Cell]] = {
        "place": [one.claim.place for one in judged],
        "claim": [one.claim.says for one in judged],
        "paper": [one.claim.paper for one in judged],
        "what": [one.found.what for one in judged],
        ours: [one.found.ours for one in judged],
        "unit": [one.found.unit for one in judged],
        "n": [one.found.n for one in judged],
        "p (Holm)": [
            "" if one.p is None else "< 0.001" if one.p < 0.001 else f"{one.p:.2g}" for one in judged
        ],
        "verdict": [f"{one.verdict}: {one.found.why}" if one.found.why else one.verdict for one in judged],
        **(more or {}),
        "could be seen": ["" if one.detectable is None else f"{one.detectable:.2g}" for one in judged],
        "rule": [one.found.rule for one in judged],
    }
    shown = [name for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)]
    rows = [list(row) for row in zip(*(columns[name] for name in shown), strict=True)]
    return Table(columns=shown, rows=rows, caption=caption, notes=list(notes))
