"""One self-contained page: pictures inline, light and dark, opens without network, prints well.

Building blocks for any page: `Section`s of paragraphs, tables, figures and notes, put together by
`render_page`. Texts are plain text (escaped), with `code` in backticks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

import lengthwise
from lengthwise.report.drawing import Picture
from lengthwise.report.tables import Table, settings_table, to_html

GENERATOR = '<meta name="generator" content="lengthwise">'
"""What tells our pages from other people's files."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a page, set in this order: title, paragraphs, tables, figures, passages, notes, details."""

    title: str
    paragraphs: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Picture] = ()
    passages: Sequence[Markup] = ()
    """As `passage_html` writes them."""
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
    """The page as one HTML text.

    Args:
        title: heading and window title.
        lead: one or a few sentences under it: what the page says.
        sections: the parts; more than two get a list of links.
        provenance: what each result comes from, by heading; nested settings are set out as `a.b`.
        notices: sentences that must not be overlooked, set off under the lead.
        partial: marks the title: results are missing.
    """
    names = [picture.name for section in sections for picture in section.figures]
    assert len(names) == len(set(names)), f"two pictures of one name (their ids would clash): {sorted(names)}"
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=title,
            lead=[lead] if isinstance(lead, str) else lead,
            notices=notices,
            partial=partial,
            sections=sections,
            provenance=[settings_table(plain, caption=name) for name, plain in (provenance or {}).items()],
            version=lengthwise.__version__,
        )
    )


def prose(text: str) -> Markup:
    """Plain text as HTML, `code` in backticks set as such."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("lengthwise", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(prose=prose, table=to_html)
    return environment
