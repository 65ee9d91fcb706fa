"""The table of the arms of an experiment, which every study fills with its own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lengthwise.report.tables import Cell, Estimate, Table, row_estimate
from lengthwise.results import Row
from lengthwise_studies.paired_claims import Quantity


@dataclass(frozen=True)
class OfArm:
    """An arm as a column: its own numbers, or its differences from `reference`."""

    heading: str
    reference: str | None = None

    def is_in(self, row: Row, length: int) -> bool:
        """Whether `row` is a number of the arm."""
        return (row.arm, row.reference) == (self.heading, self.reference)


def arms_table(
    lines: Mapping[str, Sequence[Row]],
    shown: Sequence[Quantity | OfArm],
    cell: Callable[[list[Row]], Cell],
    *,
    length: int = 1,
    caption: str = "",
    notes: Sequence[str] = (),
) -> Table:
    """One line for each arm (and seed), one column for each number that some line has; lines with none are left out.

    Args:
        lines: the rows of each line, by its name.
        shown: the numbers; or arms, where each line is a number.
        cell: of the rows of one line and number: one a seed.
        length: L in tokens; 1 where the lengths of `shown` are tokens.
        caption, notes: of the table.
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


def first_estimate(rows: Sequence[Row]) -> Estimate | None:
    """The number of the first row with its interval; None without rows."""
    return row_estimate(rows[0]) if rows else None
