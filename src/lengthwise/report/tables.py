"""Numbers with their intervals as text, tables, and the tables of a run's rows. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lengthwise.measure.measurement import About
from lengthwise.measure.table import by_task
from lengthwise.results import Row

_SCORES = {
    "accuracy": "share of questions with the right answer",
    "chance": "the accuracy of guessing among the ranked answers",
    "gold_probability": "the right answer's share of the likelihood of all ranked answers",
    "gold_loss": "-log gold_probability, nats an answer",
    "effective_length": "tokens up to which at least 85 % of the score at the shortest length are kept",
    "contained": "share of the right numbers that the reply contains",
    "average_rows": "mean over data sets of the mean of all their rows",
    "average_categories": "mean over categories of the mean of their data sets",
    "average_buckets": "mean over the buckets of length of the mean over data sets",
}
# What tells headline numbers of one metric apart.
_PLACES = ("length", "distance", "kept")
_WHERE = {
    "distance": "{:,} back",
    "kept": "{:,} kept",
    "depth": "depth {:g} %",
    "bucket": "{}",
    "seed": "seed {}",
}
MOST_COLUMNS = 6
"""Of a table on a page: as many as a laptop shows whole."""
_LEAST_WRITTEN, _MOST_WRITTEN = 1e-6, 1e9
"""Smaller and larger numbers are written with a power of ten."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, where there is one; None where it is undefined.

    `signed` writes a plus sign too (for differences); `at_least` says that the value is a lower bound.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    signed: bool = False
    at_least: bool = False

    @property
    def value_text(self) -> str:
        """The value alone: two significant digits of the half-width decide its decimals."""
        if self.value is None:
            return "n/a"
        return ("at least " if self.at_least else "") + self._fixed(self.value)

    @property
    def interval_text(self) -> str:
        """The interval as `[low, high]`, or nothing."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        return f"[{self._fixed(self.low)}, {self._fixed(self.high)}]"

    @property
    def text(self) -> str:
        """Value and interval in one line: `6.897 [6.812, 6.983]`."""
        return f"{self.value_text} {self.interval_text}".rstrip()

    def _fixed(self, number: float) -> str:
        # The perplexity of a broken model has 38 digits.
        if abs(number) >= _MOST_WRITTEN:
            return f"{number:{'+' if self.signed else ''}.3g}"
        # What rounding leaves is not nothing.
        if 0 < max(map(abs, self._given())) < _LEAST_WRITTEN:
            return f"{number or 0.0:{'+' if self.signed else ''}.2g}"
        text = f"{number:{'+' if self.signed else ''}.{self._decimals()}f}"
        # Minus nothing is nothing.
        return text.replace("-", "+" if self.signed else "") if float(text) == 0 else text

    def _given(self) -> list[float]:
        return [number for number in (self.value, self.low, self.high) if number is not None]

    def _decimals(self) -> int:
        """0 to 6: two significant digits of the half-width, or four of the value."""
        assert self.value is not None
        given = self._given()
        size, digits = abs(self.value), 4
        if self.low is not None and self.high is not None and self.high > self.low:
            size, digits = (self.high - self.low) / 2, 2
        # A whole number from 100 is a count of tokens.
        if size == 0 or (self.value >= 100 and all(float(number).is_integer() for number in given)):
            return 0
        # The last bit of 0.1 = (3.3 - 3.1) / 2 must not decide.
        return min(6, max(0, digits - 1 - math.floor(math.log10(size) + 1e-9)))


_NO_SIGNS = (*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0xFFFE, 0xFFFF)
_SHOWN = {code: "\ufffd" for code in (*_NO_SIGNS, *range(0xD800, 0xE000)) if chr(code) not in "\t\n"}


def readable(text: str) -> str:
    """The text without control characters and without characters that change the direction of writing."""
    return text.translate(_SHOWN)


Cell = str | int | float | Estimate | None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Columns, rows of cells, a caption and notes under it.

    A cell is text, a number, an `Estimate`, or None (empty). Every row has one cell per column.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"{len(row)} cells for columns {self.columns}"

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers only (it is then set flush right)."""
        cells = [row[column] for row in self.rows if row[column] is not None]
        return bool(cells) and not any(isinstance(cell, str) for cell in cells)


def cell_text(cell: Cell) -> str:
    """A cell as plain text: `6.897 [6.812, 6.983]`, `1024`, `0.5`, or nothing for None."""
    cell = Estimate(cell) if isinstance(cell, float) else cell
    return "" if cell is None else cell.text if isinstance(cell, Estimate) else str(cell)


def fitted(table: Table) -> list[Table]:
    """The table in parts of at most `MOST_COLUMNS` columns.

    Its first columns, if they are names, are joined into one while it has more. The others then take turns: every
    part has the first column, as many of the others as the next part, and the rows that have anything there.
    """
    while len(table.columns) > MOST_COLUMNS and all(
        isinstance(row[1], str) and "[" not in row[1] for row in table.rows
    ):
        rows = [(": ".join(filter(None, map(cell_text, row[:2]))), *row[2:]) for row in table.rows]
        first = ", ".join(filter(None, table.columns[:2]))
        table = replace(table, columns=[first, *table.columns[2:]], rows=rows)
    others = len(table.columns) - 1
    if others < MOST_COLUMNS:
        return [table]
    size = math.ceil(others / math.ceil(others / (MOST_COLUMNS - 1)))
    starts = range(1, others + 1, size)
    return [
        Table(
            columns=[table.columns[0], *table.columns[start : start + size]],
            rows=[
                [row[0], *row[start : start + size]]
                for row in table.rows
                if any(cell not in (None, "") for cell in row[start : start + size])
            ],
            caption=table.caption if start == starts[0] else "",
            notes=table.notes if start == starts[-1] else (),
        )
        for start in starts
    ]


def settings_table(settings: Mapping[str, Any], *, caption: str = "") -> Table:
    """One line for each setting; nested keys are joined by dots, lists by commas."""
    rows: list[tuple[str, Cell]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            rows += [(f"{key}.{inner}", text) for inner, text in settings_table(value).rows]
        elif isinstance(value, (list, tuple)):
            rows.append((key, ", ".join(map(str, value)) or "none"))
        else:
            rows.append((key, "none" if value is None else str(value)))
    return Table(columns=("setting", "value"), rows=rows, caption=caption)


def questions() -> dict[str, str]:
    """Task -> the question that it answers, in the order of a page. The tasks of an evaluation are not among them."""
    return {task: entry.summary for task, entry in by_task().items()} | {"training": "What did training do?"}


def display_of(task: str) -> About:
    """The display of a task; a task of an evaluation is shown under its own name."""
    if (entry := by_task().get(task)) is not None:
        return entry.measurement.about
    return About(title=task.replace("_", " ").capitalize(), metrics=_SCORES)


def tasks_in_order(tasks: Iterable[str]) -> list[str]:
    """Tasks in the order of `questions`, others as they came."""
    order = list(questions())
    return sorted(dict.fromkeys(tasks), key=lambda task: order.index(task) if task in order else len(order))


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Rows by task and metric in the order of the displays, then as they came."""
    tasks = tasks_in_order(row.task for row in rows)
    metrics = {task: list(display_of(task).metrics) for task in tasks}

    def place(row: Row) -> tuple[int, int]:
        known = metrics[row.task]
        return tasks.index(row.task), known.index(row.metric) if row.metric in known else len(known)

    return sorted(rows, key=place)


def series_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's curve or column: its arm, or its model, or both where both vary."""
    several_models = len({row.model for row in rows}) > 1
    return [f"{row.model}, {row.arm}" if row.arm and several_models else row.arm or row.model for row in rows]


def rows_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each row, in few columns: what the number is, where, its value, its unit and what it averages.

    A column that says the same of all rows, or nothing (one model, no paired difference), is left out.
    """
    shown: dict[str, Sequence[Cell]] = {}
    if len({*(names := series_names(rows))}) > 1:
        shown["model"] = names
    shown |= _metrics(rows)
    for heading, of in (("where", _where), ("against", lambda row: row.reference)):
        if any(cells := [of(row) for row in rows]):
            shown[heading] = cells
    values = "value [95 % interval]" if has_intervals(rows) else "value"
    shown |= {values: [row_estimate(row) for row in rows], "unit, from": [_from(row) for row in rows]}
    return Table(columns=tuple(shown), rows=list(zip(*shown.values(), strict=True)), caption=caption)


def _where(row: Row) -> str:
    """Which of the metric's numbers it is: "512 tokens, positions 0 to 64"."""
    parts = [f"{row.length:,} tokens"] if row.length is not None else []
    if row.context is not None:
        parts.append(f"contexts {row.context:,} and {row.context_other or 0:,}")
    if row.position is not None:
        parts.append(f"positions {row.position:,} to {row.position_end or 0:,}")
    for name, words in _WHERE.items():
        if (value := getattr(row, name)) is not None:
            parts.append(words.format(value))
    return ", ".join(parts)


def _from(row: Row) -> str:
    """The unit and what the number averages."""
    counts = (("n = {:,}", row.n), ("{:,} documents", row.documents), ("{:,} cut", row.truncated or None))
    return ", ".join([row.unit, *(words.format(count) for words, count in counts if count is not None)])


def side_by_side(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each metric and length (or distance), one column for each model, arm and seed."""
    names = [
        name if row.seed is None else f"{name}, seed {row.seed}"
        for row, name in zip(rows, series_names(rows), strict=True)
    ]
    places = {"metric": [row.metric for row in rows], **_places(rows)}
    lines: dict[tuple[Cell, ...], dict[str, Estimate]] = {}
    for row, name, place in zip(rows, names, zip(*places.values(), strict=True), strict=True):
        lines.setdefault(place, {})[name] = row_estimate(row)
    columns = list(dict.fromkeys(names))
    return Table(
        columns=(*places, *columns),
        rows=[[*place, *map(found.get, columns)] for place, found in lines.items()],
        caption=caption,
    )


def difference_table(rows: Sequence[Row], *, caption: str = "") -> Table:
    """One line for each paired difference among `rows`, with the two numbers that it is made of.

    These two stand without interval: that of one side says nothing about the difference.
    """
    plain: dict[tuple[str | None, ...], Estimate] = {
        (row.model, *row.place): Estimate(row.value, at_least=bool(row.at_least))
        for row in rows
        if row.reference is None
    }
    differences = in_order([row for row in rows if row.reference is not None])
    shown = _metrics(differences) | _places(differences)
    shown["run"] = [row.model for row in differences]
    shown["value"] = [plain.get((row.model, *row.place)) for row in differences]
    shown["reference's"] = [plain.get((row.reference, *row.place)) for row in differences]
    shown["difference [95 % interval]"] = [row_estimate(row) for row in differences]
    shown["p (Holm)"] = [
        "" if row.p_holm is None else "< 0.0001" if row.p_holm < 1e-4 else f"{row.p_holm:.4f}"
        for row in differences
    ]
    shown["more than noise"] = [{None: "", True: "yes", False: "no"}[row.beyond_noise] for row in differences]
    return Table(columns=tuple(shown), rows=list(zip(*shown.values(), strict=True)), caption=caption)


def has_intervals(rows: Sequence[Row]) -> bool:
    """Whether any row has one."""
    return any(row.ci_low is not None for row in rows)


def row_estimate(row: Row) -> Estimate:
    """A row's value and interval as a cell."""
    signed = row.reference is not None
    return Estimate(row.value, row.ci_low, row.ci_high, signed=signed, at_least=bool(row.at_least))


def row_text(row: Row) -> str:
    """The value with its interval; nats without one have three decimals, unless these would all be 0."""
    plain = f"{row.value:.3f}" if row.ci_low is None and row.unit == "nats" else None
    return row_estimate(row).text if plain is None or (row.value and float(plain) == 0) else plain


def tokens_text(row: Row) -> str:
    """A number of tokens with its interval."""
    ends = f" [{row.ci_low:,.0f}, {row.ci_high:,.0f}]" if row.ci_low is not None else ""
    return f"{'at least ' if row.at_least else ''}{row.value:,.0f}{ends} tokens"


def _metrics(rows: Sequence[Row]) -> dict[str, Sequence[Cell]]:
    """The column of the metrics, after one of the tasks if there are several."""
    several = len({row.task for row in rows}) > 1
    tasks = {"task": [row.task for row in rows]} if several else {}
    return {**tasks, "metric": [row.metric for row in rows]}


def _places(rows: Sequence[Row]) -> dict[str, Sequence[Cell]]:
    """The columns of `_PLACES` in which any row has a value."""
    columns = {name: [getattr(row, name) for row in rows] for name in _PLACES}
    return {name: cells for name, cells in columns.items() if any(cell is not None for cell in cells)}
