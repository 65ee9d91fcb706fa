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
from lengthwise.report.sentence import said
from lengthwise.report.tables import (
    Cell,
    Estimate,
    Table,
    cell_text,
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
    return _with_shared_letters(readable(page))


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


_PICTURE = re.compile(r'<svg role="img".*?</svg>', re.DOTALL)
_LETTER = re.compile(r'<path id="([^"]+)" d="([^"]+)" transform="scale\(0\.015625\)"\s*/>')
"""The shape of a letter, as matplotlib defines it."""
_LONG = re.compile(r"(-?\d+\.\d{2})\d+")
_BARE_GROUP = re.compile(r"<g>((?:<(?:use|path|defs|/defs)\b[^>]*>)*)</g>")
_PLACES = re.compile(r'\b(?:d|x|y)="[^"]*"|translate\([^)]*\)')


def _with_shared_letters(page: str) -> str:
    """The page with its pictures as small as they get: a hundredth of a point is less than a pixel.

    A picture has shapes in place of fonts, so that it looks the same everywhere, also as a file of its own. In a page
    they stand once for all pictures: they were more than half of a page with eight of them.
    """
    names: dict[str, str] = {}

    def smaller(found: re.Match[str]) -> str:
        svg, own = found[0], dict[str, str]()

        def shared(letter: re.Match[str]) -> str:
            own[letter[1]] = names.setdefault(letter[2], f"letter-{len(names)}")
            return ""

        svg = _LETTER.sub(shared, svg)
        svg = re.sub(r'xlink:href="#([^"]+)"', lambda use: f'href="#{own.get(use[1], use[1])}"', svg)
        svg = re.sub(r"<!--.*?-->|(?<=>)\s+(?=<)", "", svg, flags=re.DOTALL).replace("<defs></defs>", "")
        svg = _PLACES.sub(lambda place: _LONG.sub(r"\1", " ".join(place[0].split())), svg)
        used = set(re.findall(r"#([\w.-]+)", svg))
        svg = re.sub(r' id="([^"]+)"', lambda each: each[0] if each[1] in used else "", svg)
        svg = re.sub(r'<use (href="[^"]+") transform="translate\((\S+) 0\)"\s*/>', r'<use \1 x="\2"/>', svg)
        while (flat := _BARE_GROUP.sub(r"\1", svg)) != svg:
            svg = flat
        return svg

    page = _PICTURE.sub(smaller, page)
    if not names:
        return page
    shapes = "".join(
        f'<path id="{name}" d="{" ".join(shape.split())}" transform="scale(0.015625)"/>'
        for shape, name in names.items()
    )
    letters = (
        f'<svg width="0" height="0" style="position: absolute" aria-hidden="true"><defs>{shapes}</defs></svg>'
    )
    return page.replace("<body>\n", f"<body>\n{letters}\n", 1)


_ENVIRONMENT = Environment(
    loader=PackageLoader("lengthwise", "report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "prose": prose,
    "kinds": _kinds,
    "cell": _cell,
    "sort_key": _sort_key,
}
