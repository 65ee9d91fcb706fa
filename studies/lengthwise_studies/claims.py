"""Claims: a statement, the test that decides it, the verdict, and the table of verdicts. There is one kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from lengthwise.measure.difference import holm_corrected
from lengthwise.report.tables import Cell, Table
from lengthwise.results import SIGNIFICANCE

REPRODUCED, OPPOSITE, OUTSIDE = "reproduced", "opposite at this scale", "outside the margin"
EXCLUDED, NOT_DECIDED = "the paper's size is excluded", "not decided"
NOT_RUN, NOT_JUDGED = "not run", "not judged"
HOLDS, FAILS = "holds", "does not hold"
NOT_TRAINED = "says nothing: not trained"
VERDICTS = {
    REPRODUCED: "p < 0.05 for the claim. Of a claim with a margin: within the margin",
    OPPOSITE: "p < 0.05 for the other direction",
    OUTSIDE: "p < 0.05 against a claim with a margin",
    EXCLUDED: "neither direction is shown, and p < 0.05 against a difference as large as the paper's",
    NOT_DECIDED: "none of these. In brackets: the smallest difference, or margin, that could have been seen",
    NOT_JUDGED: "what this scale has is not what the claim is about; the reason is beside it",
    NOT_RUN: "no numbers: LongBench-E needs its data, BABILong a model that answers, Table 7 hours of a core",
}
"""What each verdict of a test says. Verdicts of a rule: it holds, it does not, or it is not decided."""
HELPS, HARMLESS, HARMS, OTHER = "it helps", "it does no harm", "it harms", "something else"
"""What a claim says of the term. A claim that too much of it, or too little training, harms is counted apart."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a test found.

    Args:
        verdict: of a test with a p value: if `p` is small.
        ours: the number with its interval, or numbers in words.
        unit: of the number.
        n: models.
        p: before Holm's correction; None for a rule.
        p_size: of a true difference as large as the paper's, before Holm's correction; None without such a size.
        detectable: the smallest effect that would have been seen among so many tests.
        why: what is missing, or what else a reader of the verdict must know.
    """

    verdict: str
    ours: Cell = None
    unit: str = ""
    n: int | None = None
    p: float | None = None
    p_size: float | None = None
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
        return None if decision is None else Found(ours=decision[0], verdict=decision[1])


@dataclass(frozen=True, kw_only=True)
class Claim(Generic[T]):
    """One statement of a paper, or our own.

    Args:
        place, source: the table, panel or answer that makes it; section, page and line of the paper's text.
        says: the statement, in short.
        test: how numbers decide it.
        paper: the paper's number; "" for a claim of our own.
        levels: what the paper prints of each of the two arms, as it prints it.
        term: what it says of the term: HELPS, HARMLESS, HARMS or OTHER.
        unless: why it cannot be judged at a scale; "" where it can.
    """

    place: str
    says: str
    test: T
    source: str = ""
    paper: str = ""
    levels: Mapping[str, float] = field(default_factory=dict)
    term: str = OTHER
    unless: Callable[[Any], str] = field(default=lambda scale: "")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim with its verdict; p values are after Holm's correction, `detectable` is what its table could show."""

    claim: Claim
    found: Found
    verdict: str
    p: float | None
    p_size: float | None
    detectable: float | None

    @property
    def excluded(self) -> bool | None:
        """Whether a difference as large as the paper's is excluded; None where the claim has no size."""
        return None if self.p_size is None else self.p_size < SIGNIFICANCE

    @property
    def text(self) -> str:
        """The verdict in words, with its reason, or with what could have been seen."""
        could = shown_detectable(self) if self.verdict == NOT_DECIDED else ""
        verdict = f"{self.verdict} (could see {could})" if could else self.verdict
        return f"{verdict}: {self.found.why}" if self.found.why else verdict


def judge(claims: Iterable[Claim], numbers: Any, scale: Any = None) -> list[Judged]:
    """A verdict on every claim of a table that the numbers are about.

    Holm's correction is over the tests with a p, and over the tests against the paper's sizes by themselves.
    `scale` is what a claim's `unless` asks.
    """
    found: list[tuple[Claim, Found]] = []
    for claim in claims:
        why = claim.unless(scale)
        one = Found(verdict=NOT_JUDGED, why=why) if why else claim.test(numbers)
        if one is not None:
            found.append((claim, one))
    corrected = holm_corrected([one.p for _, one in found])
    sizes = holm_corrected([one.p_size for _, one in found])
    tests = sum(p is not None for p in corrected)
    return [
        decide(claim, one, p=p, p_size=p_size, detectable=one.detectable(tests))
        for (claim, one), p, p_size in zip(found, corrected, sizes, strict=True)
    ]


def decide(
    claim: Claim, found: Found, *, p: float | None, p_size: float | None, detectable: float | None
) -> Judged:
    """The verdict that the corrected p values allow. Nothing is judged that could not have been seen."""
    verdict = found.verdict
    if p is not None and p >= SIGNIFICANCE:
        verdict = EXCLUDED if p_size is not None and p_size < SIGNIFICANCE else NOT_DECIDED
    return Judged(claim=claim, found=found, verdict=verdict, p=p, p_size=p_size, detectable=detectable)


def ruled(*rows: tuple[str, str, str, str, Callable[[Any], Decision | None]]) -> list[Claim]:
    """Claims that rules decide: place, what is said, the paper's number, the rule in words, and what decides."""
    return [
        Claim(place=place, says=says, paper=paper, test=Rule(rule, decide))
        for place, says, paper, rule, decide in rows
    ]


def placed(claims: Iterable[Claim], where: str) -> list[Claim]:
    """The claims as they are judged on one text or setting of several, which is then in their place."""
    return [replace(claim, place=f"{claim.place}, {where}") for claim in claims]


def shown_p(p: float | None) -> str:
    """A p value in a cell."""
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.2g}"


def shown_detectable(judged: Judged) -> str:
    """In a cell: the smallest difference, or margin, that could have been seen."""
    return "" if judged.detectable is None else f"{judged.detectable:.2g}"


def shown_power(judged: Judged) -> str:
    """In a cell: is a difference as large as the paper's excluded, and what could have been seen?"""
    size = {None: "", True: "excluded", False: "possible"}[judged.excluded]
    return ", ".join(filter(None, (size, shown_detectable(judged))))


def verdict_table(
    judged: Sequence[Judged],
    *,
    caption: str = "The paper's claims",
    ours: str = "ours",
    notes: Sequence[str] = (),
    one_place: bool = False,
) -> Table:
    """One line for each claim. Columns in which no claim has anything are left out. `ours` heads our numbers.

    On a page about `one_place`, a place that all claims have is left out too. Rules are here where no claim has a
    p value, else in `rules_table`.
    """
    places, tested = [one.claim.place for one in judged], any(one.p is not None for one in judged)
    units = [*dict.fromkeys(one.found.unit for one in judged if one.found.ours is not None)]
    heading = ", ".join(filter(None, (ours, *units))) if len(units) == 1 else ours
    # What a reader asks first is on the left.
    columns: dict[str, Sequence[Cell]] = {
        "place": [""] * len(places) if one_place and len({*places}) == 1 else places,
        "claim": [one.claim.says for one in judged],
        "paper": [one.claim.paper for one in judged],
        heading: [one.found.ours for one in judged],
        "unit": [one.found.unit if len(units) > 1 else "" for one in judged],
        "p (Holm)": [shown_p(one.p) for one in judged],
        "verdict": [one.text for one in judged],
        "the paper's size, could be seen": [
            ", ".join(filter(None, (shown_power(one), f"n = {one.found.n}" if one.found.n else "")))
            for one in judged
        ],
        "rule": [
            one.claim.test.rule if isinstance(one.claim.test, Rule) and not tested else "" for one in judged
        ],
    }
    shown = [name for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)]
    rows = [list(row) for row in zip(*(columns[name] for name in shown), strict=True)]
    return Table(columns=shown, rows=rows, caption=caption, notes=list(notes))


def tally(tables: Iterable[Table]) -> list[str]:
    """A sentence on how many claims have which verdict; nothing of tables without verdicts."""
    texts = [
        str(row[table.columns.index("verdict")])
        for table in tables
        if "verdict" in table.columns
        for row in table.rows
    ]
    names, count = (*VERDICTS, HOLDS, FAILS, NOT_TRAINED), Counter[str]()
    for text in texts:
        # The rest of a verdict is its reason, or what could have been seen.
        found = (name for name in names if text == name or text.startswith((f"{name} (", f"{name}:")))
        count[next(found, "")] += 1
    parts = [f'{count[name]} "{name}"' for name in names if count[name]]
    parts += [f"{count['']} in other words"] if count[""] else []
    return [f"The verdicts on {len(texts)} claims: {', '.join(parts)}."] if texts else []


def by_term(judged: Iterable[Judged]) -> str:
    """A sentence on the verdicts by what each claim says of the term; "" of claims that say nothing of it."""
    counts = {term: Counter[str]() for term in (HELPS, HARMLESS, HARMS, OTHER)}
    for one in judged:
        counts[one.claim.term][one.verdict] += 1
    if not any(own for term, own in counts.items() if term != OTHER):
        return ""
    said = [
        f"{'' if term == OTHER else 'that '}{term}, "
        + ", ".join(f"{own[name]} {name}" for name in VERDICTS if own[name])
        for term, own in counts.items()
        if own
    ]
    return f"By what a claim says of the term: {'; '.join(said)}."


def rules_table(claims: Iterable[Claim], caption: str = "The rule of each claim") -> Table:
    """Where the paper makes each claim, and when it holds."""
    rows = [[claim.source or claim.place, claim.says, claim.test.rule] for claim in claims]
    return Table(columns=["place", "claim", "holds if"], rows=rows, caption=caption)
