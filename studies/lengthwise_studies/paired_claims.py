"""The test of a claim about two arms of an experiment: their paired differences over seeds and documents.

A claim that two arms do the same has a margin. It is confirmed where the difference lies within it (two one-sided
tests), and contradicted where it lies outside. A claim that one arm is not higher (or lower) than the other by more
than a margin is tested against that margin alone. Where the paper has a size, a second test asks whether the numbers
allow it. The statistics are those of `lengthwise_studies.over_seeds`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Literal

from lengthwise.errors import UsageError
from lengthwise.report.tables import Cell, Estimate, Table
from lengthwise.results import Row
from lengthwise_studies.claims import EXCLUDED, NOT_DECIDED, NOT_RUN, OPPOSITE, OUTSIDE, REPRODUCED, Found
from lengthwise_studies.over_seeds import FEWEST_SEEDS, POWER, OverSeeds, over_seeds

Direction = Literal["lower", "higher", "same", "not higher", "not lower"]
"""The last three have a margin."""
NOTE = (
    "Intervals at 95 % over seeds and documents. p is corrected over the table (Holm), and so is the test against "
    f"the paper's size. Where p is 0.05 or more, a claim is {NOT_DECIDED}, or {EXCLUDED}. What could be "
    f"seen would have been seen in {POWER:.0%} of cases. "
    f"Fewer than {FEWEST_SEEDS} seeds give no verdict."
)
"""Below a table of verdicts."""


@dataclass(frozen=True)
class Quantity:
    """One number of every arm. Lengths are multiples of L, the training length, which depends on the scale.

    Args:
        heading: in tables, such as "loss at 2L".
        task, metric: of the rows.
        times, distance: length / L, and that of recall; None for a number without.
        times_other: length / L of the arm that it is compared with, where that is another.
        depth: of the answer, in per cent of the context; None averages over depths.
        unit: of the number.
    """

    heading: str
    task: str
    metric: str
    times: float | None = None
    times_other: float | None = None
    distance: float | None = None
    depth: float | None = None
    unit: str = "nats"

    def is_in(self, row: Row, length: int) -> bool:
        """Whether `row` is this number of some arm (and not a bin of it) where L is `length` tokens."""
        return (
            (row.task, row.metric, row.depth) == (self.task, self.metric, self.depth)
            and row.position is None
            and row.context_other == (None if self.times_other is None else round(self.times_other * length))
            and row.bucket is None
            and (self.times is None or row.length == round(self.times * length))
            and row.distance == (None if self.distance is None else round(self.distance * length))
        )


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The rows of a run, with the paired differences of each seed (`arm`, `reference`, `seed`).

    `length` is L in tokens (1 where quantities have tokens), `steps` what the names of arms end with after so many
    steps of the paper.
    """

    rows: Sequence[Row]
    length: int = 1
    steps: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Two arms compared in one number.

    Args:
        quantity: what is compared.
        arm, against: the arm that the statement is about, and the other.
        direction: what the statement says of the arm's number against the other's.
        margin: in the quantity's unit. For "same": differences up to this are the same. For "not higher" and "not
            lower": how much higher or lower is still allowed.
        because: where the margin comes from.
        size: the difference that the paper has, or that its table has of the term; None where it has no number.
        steps: training steps after which it is compared, in the paper's count; None: at the end.
        across: settings in which the two arms are measured differently, because the statement is about them.
    """

    quantity: Quantity
    arm: str
    against: str
    direction: Direction
    margin: float | None = None
    because: str = ""
    size: float | None = None
    steps: int | None = None
    across: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert (self.margin is None) == (self.direction in ("lower", "higher")), self
        assert self.margin is None or self.margin > 0, self
        # What is claimed to be the same has no size that could be excluded.
        assert self.size is None or self.direction != "same", self

    @property
    def rule(self) -> str:
        """The tested number in words, where it has to be for the claim to hold, and where the margin comes from."""
        after = "" if self.steps is None else f" after {self.steps} of the paper's steps"
        margin = f"{self.margin or 0:.2g} {self.quantity.unit}"
        bounds: dict[Direction, str] = {
            "lower": "below 0",
            "higher": "above 0",
            "same": f"within {margin} of 0",
            "not higher": f"below +{margin}",
            "not lower": f"above -{margin}",
        }
        because = f" ({self.because})" if self.because else ""
        return f"{self.quantity.heading}, {self.arm} minus {self.against}{after}: {bounds[self.direction]}{because}"

    def __call__(self, measured: Measured) -> Found:
        """The mean difference over seeds and documents, and the verdict if it is more than noise."""
        found = partial(Found, unit=self.quantity.unit)
        try:
            over = self._over_seeds(measured)
        except UsageError as lacks:
            return found(verdict=NOT_RUN, why=lacks.problem)
        same, margin = self.direction == "same", self.margin or 0.0
        below = self.direction in ("lower", "not higher")
        # The truth that separates what confirms the claim from what contradicts it.
        bound = math.copysign(margin, over.mean) if same else margin if below else -margin
        as_claimed = abs(over.mean) < margin if same else (over.mean < bound) == below
        return found(
            verdict=REPRODUCED if as_claimed else OUTSIDE if self.margin else OPPOSITE,
            ours=over.estimate,
            p=over.p_value(bound),
            p_size=None if self.size is None else over.p_value(self.size),
            detectable=partial(over.detectable, both_ends=same),
            why="" if over.error else "no number differs in any seed",
        )

    def _over_seeds(self, measured: Measured) -> OverSeeds:
        if self.steps is not None and self.steps not in measured.steps:
            raise UsageError("this scale keeps no such checkpoint")
        after = "" if self.steps is None else measured.steps[self.steps]
        pair = self.arm + after, self.against + after
        rows = [
            row
            for row in measured.rows
            if (row.arm, row.reference) == pair and self.quantity.is_in(row, measured.length)
        ]
        if not rows:
            raise UsageError("not measured at this scale")
        assert len({row.seed for row in rows}) == len(rows), f"{self} names several numbers of one seed"
        return over_seeds(rows)


def estimate_over_seeds(rows: Sequence[Row]) -> Estimate | None:
    """The mean of a row for each seed, with its 95 % interval over seeds and documents; None without one."""
    try:
        return over_seeds(rows).estimate
    except UsageError:
        return None


def range_over_seeds(rows: Sequence[Row], *, signed: bool = False) -> Estimate | None:
    """The mean over seeds with the lowest and the highest; the 95 % interval of one seed.

    None where a seed has no value: a mean over the others would be of other models.
    """
    values = [row.value for row in rows if row.value is not None]
    if not values or len(values) < len(rows):
        return None
    at_least = any(row.at_least for row in rows)
    low, high = (rows[0].ci_low, rows[0].ci_high) if len(values) == 1 else (min(values), max(values))
    return Estimate(fmean(values), low, high, signed=signed, at_least=at_least)


def range_of(
    rows: Iterable[Row], quantity: Quantity, length: int, arm: str, reference: str | None = None
) -> Estimate | None:
    """The same of one number of an arm, or of its difference from another, where L is `length` tokens."""
    own = [row for row in rows if (row.arm, row.reference) == (arm, reference)]
    wanted = [row for row in own if quantity.is_in(row, length)]
    return range_over_seeds(wanted, signed=reference is not None)


def arms_table(
    lines: Mapping[str, Sequence[Row]],
    shown: Sequence[Quantity],
    cell: Callable[[list[Row]], Cell],
    *,
    length: int = 1,
    caption: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """One line for each arm (and seed), one column for each number that some line has; lines with none are left out.

    `cell` is called with the rows of one line and number, one a seed. `length` is L in tokens, as in `Measured`.
    """
    rows = [row for of_line in lines.values() for row in of_line]
    there = [one for one in shown if any(one.is_in(row, length) for row in rows)]
    found: list[list[Cell]] = []
    for name, of_line in lines.items():
        cells = [cell([row for row in of_line if one.is_in(row, length)]) for one in there]
        if any(one is not None for one in cells):
            found.append([name, *cells])
    return Table(
        columns=["", *(one.heading for one in there)], rows=found, caption=caption, notes=list(notes)
    )


def by_line(rows: Sequence[Row], name: Callable[[Row], str | None]) -> dict[str, list[Row]]:
    """The rows of each line of a table, in their order; those that `name` gives None are in no line."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if (line := name(row)) is not None:
            found.setdefault(line, []).append(row)
    return found
