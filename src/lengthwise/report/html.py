"""One self-contained page: pictures inline, light and dark, opens without network, prints well.

Building blocks for any page: `Section`s of paragraphs, tables, figures, passages and notes, put together by
`render_page`. Texts are plain text (escaped), with `code` in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import lengthwise
from lengthwise.report.inline_svg import with_shared_letters
from lengthwise.report.sentence import said
from lengthwise.report.tables import (
    Cell,
    Estimate,
    Table,
    cell_text,
    fitted,
    in_order,
    readable,
    rows_table,
    settings_table,
)
from lengthwise.results import Results

if TYPE_CHECKING:
    from lengthwise.report.drawing import Picture

GENERATOR = '<meta name="generator" content="lengthwise">'
"""What tells our pages from other people's files."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a page, set in this order: title, lead, paragraphs, tables, figures, passages, notes, details."""

    title: str
    lead: Sequence[str] = ()
    """What it says, set larger."""
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()
    passages: Sequence[Markup] = ()
    """HTML: text with marked words."""
    notes: Sequence[str] = ()
    """Small print in a list: limits, cut rows, missing intervals."""
    details: Sequence[Table] = ()
    """Tables folded away behind their caption."""


def render_page(
    title: str,
    lead: str | Sequence[str],
    sections: Sequence[Section],
    provenance: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    notices: Sequence[str] = (),
    partial: bool = False,
) -> str:
    """The page as one HTML text: under its title the lead, `notices` that must not be overlooked, and the sections.

    More than two sections get a list of links. `provenance` is what each result comes from, by heading; nested
    settings are set out as `a.b`. `partial` marks the title: results are missing.
    """
    names = [picture.name for section in sections for picture in section.figures]
    assert len(names) == len(set(names)), f"two pictures of one name (their ids would clash): {sorted(names)}"
    page = _ENVIRONMENT.get_template("page.html").render(
        title=title,
        lead=[lead] if isinstance(lead, str) else lead,
        notices=notices,
        partial=partial,
        sections=sections,
        provenance=[settings_table(plain, caption=name) for name, plain in (provenance or {}).items()],
        version=lengthwise.__version__,
    )
    return with_shared_letters(readable(page))


def results_html(results: Results) -> str:
    """A piece of HTML, for a notebook: the sentence of a run, and its headline numbers folded."""
    module: Any = _ENVIRONMENT.get_template("table.html").module
    shown = module.whole_table(rows_table(in_order([row for row in results.rows if row.is_whole])))
    title = escape(said(results).sentence)
    return f"<p><b>{title}</b></p><details><summary>numbers</summary>{shown}</details>"


def prose(text: str) -> Markup:
    """Plain text as HTML, `code` in backticks set as such; an option is not broken, nor from a short value."""
    html = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(
        re.sub(r"--[a-z][\w-]*( [\w.]{1,8}(?![^\s<]))?", r'<span class="option">\g<0></span>', html)
    )


def _kinds(table: Table) -> list[str]:
    """The class of each column: numbers flush right, long texts wrapped."""
    kinds = []
    for i in range(len(table.columns)):
        long = any(len(cell_text(row[i])) > 40 for row in table.rows)
        kinds.append("number" if table.is_numeric(i) else "long" if long else "text")
    return kinds


def _cell(cell: Cell) -> Markup:
    if not isinstance(cell, Estimate) or not cell.interval_text:
        return escape(cell_text(cell))
    return Markup('{} <span class="interval">{}</span>').format(cell.value_text, cell.interval_text)


def _sort_key(cell: Cell) -> str | int | float:
    key = cell.value if isinstance(cell, Estimate) else cell
    return "" if key is None else key


_ENVIRONMENT = Environment(
    loader=PackageLoader("lengthwise", "report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "prose": prose,
    "fitted": fitted,
    "kinds": _kinds,
    "cell": _cell,
    "sort_key": _sort_key,
}
