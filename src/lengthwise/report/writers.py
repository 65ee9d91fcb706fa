"""A table for the terminal, in Markdown and LaTeX, and rows as CSV. The page has its own in `table.html`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from lengthwise.report.tables import Cell, Estimate, Table, cell_text
from lengthwise.results import Row

if TYPE_CHECKING:
    from rich.table import Table as RichTable


def to_markdown(table: Table) -> str:
    """A GitHub table under its caption in bold; the caption and notes are left out where there are none."""
    lines = [f"**{markdown_escape(table.caption)}**", ""] if table.caption else []
    lines.append(_markdown_row(table.columns))
    lines.append("|" + "".join("--:|" if table.is_numeric(i) else "---|" for i in range(len(table.columns))))
    lines += [_markdown_row([cell_text(cell) for cell in row]) for row in table.rows]
    for note in table.notes:
        lines += ["", markdown_escape(note)]
    return "\n".join(lines) + "\n"


def to_csv(rows: Sequence[Row]) -> str:
    """One number a line, in full precision; fields that no row has are left out."""
    plain = [asdict(row) for row in rows]
    names = [each.name for each in fields(Row) if any(row[each.name] is not None for row in plain)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, names, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(plain)
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


def to_rich(table: Table, *, width: int) -> RichTable:
    """A table for a terminal of so many columns; what does not fit is folded, where words allow it, and never cut."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    texts = [[name, *(cell_text(row[i]) for row in table.rows)] for i, name in enumerate(table.columns)]
    numeric = [table.is_numeric(column) for column in range(len(texts))]
    whole = [max(map(len, column)) for column in texts]
    least = [
        min(
            _LONGEST,
            max(
                len(piece.strip())
                for text in column
                # What the first column names is typed, so it stays whole.
                for piece in _pieces(text, joints=not numbers and column is not texts[0])
            ),
        )
        for column, numbers in zip(texts, numeric, strict=True)
    ]
    roomy = sum(whole) + 3 * len(whole) < width
    widths = _shares(whole, least, width - 1 - (3 if roomy else 2) * len(whole))

    def rich_cell(cell: Cell, column: int) -> Text:
        if isinstance(cell, Estimate) and cell.interval_text:
            return Text.assemble(cell.value_text, " ", (cell.interval_text, "dim"))
        return Text(_folded(cell_text(cell), widths[column], joints=not numeric[column]))

    title = Text(table.caption, style="bold") if table.caption else None
    drawn = RichTable(
        title=title, title_justify="left", box=box.SIMPLE_HEAD, collapse_padding=not roomy, pad_edge=roomy
    )
    for name, numbers, own in zip(table.columns, numeric, widths, strict=True):
        drawn.add_column(Text(name), justify="right" if numbers else "left", overflow="fold", width=own)
    for row in table.rows:
        drawn.add_row(*(rich_cell(cell, column) for column, cell in enumerate(row)))
    return drawn


_LONGEST = 28
"""Longer words are folded where the terminal is too narrow for the table."""


def _pieces(text: str, *, joints: bool) -> list[str]:
    """Words with the spaces before them; with joints, the parts of names that end in a sign too."""
    return re.findall(r"\s*[-_/=]*[^-_/=\s]+[-_/=]*|\s*[-_/=]+" if joints else r"\s*\S+", text) or [""]


def _shares(whole: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """Widths of columns that need `whole` columns to be in one line, and `least` to keep their words."""
    widths = list(whole) if sum(whole) <= room else list(least)
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    while sum(widths) < min(room, sum(whole)):
        most = max(range(len(widths)), key=lambda column: whole[column] / widths[column])
        widths[most] += 1
    return widths


def _folded(text: str, width: int, *, joints: bool) -> str:
    """The text in lines of at most so many characters, where its pieces allow it."""
    lines = [""]
    for piece in _pieces(text, joints=joints):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append(piece.strip())
        else:
            lines[-1] += piece
    return "\n".join(lines)


def _markdown_row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(markdown_escape(cell) for cell in cells) + " |"


def markdown_escape(text: str) -> str:
    """Text as Markdown in one line: a name in it is no link, no code and no HTML."""
    # Not every Markdown knows an escaped "<"; all know the entity.
    text = re.sub(r"([\\|*`])", r"\\\1", text).replace("<", "&lt;").replace("](", "]\\(")
    # Inside a word an underscore is only an underscore.
    text = re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)
    return " ".join(text.split())


def _latex_row(cells: Sequence[str]) -> str:
    return "    " + " & ".join(cells) + r" \\"


def _latex_cell(cell: Cell) -> str:
    text = cell_text(cell)
    if isinstance(cell, str) or not re.search(r"[\d\]]$", text):
        return _latex_escape(text)
    value, bracket, interval = text.replace("at least ", r"\geq ").partition(" [")
    return f"${value}$" + (rf" {{\scriptsize $[{interval}$}}" if bracket else "")


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


FORMS = {"latex": to_latex, "markdown": to_markdown}
"""Formats of tables for papers."""
