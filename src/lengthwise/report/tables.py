"""Numbers with their intervals as text, and a small table with its writers: terminal, Markdown, CSV, LaTeX, HTML."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from markupsafe import Markup, escape

if TYPE_CHECKING:
    from rich.table import Table as RichTable
    from rich.text import Text


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, where there is one.

    Args:
        value: the number; None where it is undefined.
        low: lower end of the interval.
        high: upper end of the interval.
        signed: write a plus sign too (for differences).
        at_least: the value is a lower bound.
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
        bound = "at least " if self.at_least else ""
        return bound + _fixed(self.value, self._decimals(), signed=self.signed)

    @property
    def interval_text(self) -> str:
        """The interval as `[low, high]`, or nothing."""
        if self.value is None or self.low is None or self.high is None:
            return ""
        decimals = self._decimals()
        low, high = (_fixed(end, decimals, signed=self.signed) for end in (self.low, self.high))
        return f"[{low}, {high}]"

    @property
    def text(self) -> str:
        """Value and interval in one line: `6.897 [6.812, 6.983]`."""
        return f"{self.value_text} {self.interval_text}".rstrip()

    def _decimals(self) -> int:
        assert self.value is not None
        given = [number for number in (self.value, self.low, self.high) if number is not None]
        if self.value >= 100 and all(float(number).is_integer() for number in given):
            # A count of tokens.
            return 0
        if self.low is not None and self.high is not None and self.high > self.low:
            return _decimals_for((self.high - self.low) / 2, digits=2)
        return _decimals_for(abs(self.value), digits=4)


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
    if cell is None:
        return ""
    if isinstance(cell, float):
        return Estimate(cell).text
    if isinstance(cell, Estimate):
        return cell.text
    return str(cell)


def settings_table(settings: Mapping[str, Any], *, caption: str = "") -> Table:
    """One line for each setting; nested keys are joined by dots, lists by commas."""
    return Table(columns=("setting", "value"), rows=_flat(settings), caption=caption)


TableFormat = Literal["csv", "latex", "markdown"]


def written(table: Table, form: TableFormat) -> str:
    """The table as text in a format for papers and other programs."""
    return {"csv": to_csv, "latex": to_latex, "markdown": to_markdown}[form](table)


def to_markdown(table: Table) -> str:
    """A GitHub table under its caption in bold; the caption and notes are left out where there are none."""
    lines = [_markdown_row(table.columns)]
    alignment = ["--:" if table.is_numeric(i) else "---" for i in range(len(table.columns))]
    lines.append("|" + "|".join(alignment) + "|")
    lines += [_markdown_row([cell_text(cell) for cell in row]) for row in table.rows]
    if table.caption:
        lines[:0] = [f"**{_markdown_escape(table.caption)}**", ""]
    for note in table.notes:
        lines += ["", _markdown_escape(note)]
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """Full precision; a column of estimates becomes three: `name`, `name low`, `name high`."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    wide = [
        any(isinstance(row[column], Estimate) for row in table.rows) for column in range(len(table.columns))
    ]
    header: list[str] = []
    for name, is_wide in zip(table.columns, wide, strict=True):
        header += [name, f"{name} low", f"{name} high"] if is_wide else [name]
    writer.writerow(header)
    for row in table.rows:
        record: list[str | int | float | None] = []
        for cell, is_wide in zip(row, wide, strict=True):
            if isinstance(cell, Estimate):
                record += [cell.value, cell.low, cell.high]
            else:
                record += [cell, None, None] if is_wide else [cell]
        writer.writerow(record)
    return stream.getvalue()


def to_latex(table: Table) -> str:
    """A `table` with a booktabs `tabular`; intervals are set small behind their value."""
    alignment = "".join("r" if table.is_numeric(i) else "l" for i in range(len(table.columns)))
    lines = [r"\begin{table}", r"  \centering"]
    if table.caption:
        lines.append(rf"  \caption{{{_latex_escape(table.caption)}}}")
    lines += [rf"  \begin{{tabular}}{{{alignment}}}", r"    \toprule"]
    lines += [_latex_row([_latex_escape(name) for name in table.columns]), r"    \midrule"]
    lines += [_latex_row([_latex_cell(cell) for cell in row]) for row in table.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}"]
    lines += [rf"  \par\smallskip {_latex_escape(note)}" for note in table.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


def to_html(table: Table) -> Markup:
    """A `<table>` whose cells carry their full value for sorting; everything is escaped."""
    parts = [Markup('<div class="table"><table class="sortable">')]
    if table.caption:
        parts.append(Markup("<caption>{}</caption>").format(table.caption))
    kinds = [_kind(table, column) for column in range(len(table.columns))]
    head = [
        Markup('<th scope="col" class="{}">{}</th>').format(kind, name)
        for kind, name in zip(kinds, table.columns, strict=True)
    ]
    parts += [Markup("<thead><tr>"), *head, Markup("</tr></thead><tbody>")]
    for row in table.rows:
        cells = [_html_cell(cell, kind) for cell, kind in zip(row, kinds, strict=True)]
        parts += [Markup("<tr>"), *cells, Markup("</tr>")]
    parts.append(Markup("</tbody></table>"))
    parts += [Markup('<p class="note">{}</p>').format(note) for note in table.notes]
    parts.append(Markup("</div>"))
    return Markup("\n").join(parts)


def to_rich(table: Table) -> RichTable:
    """A table for the terminal."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    drawn = RichTable(
        title=Text(table.caption, style="bold") if table.caption else None,
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column, name in enumerate(table.columns):
        numeric = table.is_numeric(column)
        # Numbers do not wrap, so in a wide table they would leave the names no room at all.
        longest = max((len(cell_text(row[column])) for row in table.rows), default=0)
        least = None if numeric else min(16, longest)
        drawn.add_column(Text(name), justify="right" if numeric else "left", no_wrap=numeric, min_width=least)
    for row in table.rows:
        drawn.add_row(*(_rich_cell(cell) for cell in row))
    return drawn


def _rich_cell(cell: Cell) -> Text:
    from rich.text import Text

    if isinstance(cell, Estimate) and cell.interval_text:
        return Text.assemble(cell.value_text, " ", (cell.interval_text, "dim"))
    return Text(cell_text(cell))


def _kind(table: Table, column: int) -> str:
    """The class of a column: numbers flush right, long texts wrapped."""
    if table.is_numeric(column):
        return "number"
    return "long" if any(len(cell_text(row[column])) > 40 for row in table.rows) else "text"


def _html_cell(cell: Cell, kind: str) -> Markup:
    if isinstance(cell, Estimate):
        sort_key = "" if cell.value is None else repr(cell.value)
        interval = Markup(' <span class="interval">{}</span>').format(cell.interval_text)
        shown = escape(cell.value_text) + (interval if cell.interval_text else "")
        return Markup('<td class="{}" data-value="{}">{}</td>').format(kind, sort_key, shown)
    sort_key = "" if cell is None else cell
    return Markup('<td class="{}" data-value="{}">{}</td>').format(kind, sort_key, cell_text(cell))


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_markdown_escape(cell) for cell in cells) + " |"


def _markdown_escape(text: str) -> str:
    # Not every Markdown knows an escaped "<"; all know the entity.
    text = re.sub(r"([\\|*`])", r"\\\1", text).replace("<", "&lt;")
    # Inside a word an underscore is only an underscore.
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return " ".join(text.split())


def _latex_row(cells: Sequence[str]) -> str:
    return "    " + " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    if isinstance(cell, Estimate) and cell.interval_text:
        return rf"${_latex_bound(cell.value_text)}$ {{\scriptsize ${cell.interval_text}$}}"
    if isinstance(cell, (Estimate, int, float)):
        text = _latex_bound(cell_text(cell))
        return f"${text}$" if text[-1:].isdigit() else text
    return _latex_escape(cell_text(cell))


def _latex_bound(text: str) -> str:
    return text.replace("at least ", r"\geq ")


_LATEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    # At the start of a row a bare [ would be read as the optional argument of \\.
    "[": "{[}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
}


def _latex_escape(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def _decimals_for(size: float, *, digits: int) -> int:
    """Decimals that show `digits` significant digits of a number of this size, within 0 to 6."""
    if size == 0:
        return 0
    # The last bit of 0.1 = (3.3 - 3.1) / 2 must not decide.
    exponent = math.floor(math.log10(size) + 1e-9)
    return min(6, max(0, digits - 1 - exponent))


def _fixed(value: float, decimals: int, *, signed: bool) -> str:
    text = f"{value:+.{decimals}f}" if signed else f"{value:.{decimals}f}"
    # Minus nothing is nothing.
    return text.replace("-", "+" if signed else "") if float(text) == 0 else text


def _flat(settings: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            rows += _flat(value, f"{prefix}{key}.")
        elif isinstance(value, (list, tuple)):
            rows.append((f"{prefix}{key}", ", ".join(map(str, value))))
        else:
            rows.append((f"{prefix}{key}", "none" if value is None else str(value)))
    return rows
