"""One self-contained page: pictures inline, light and dark, opens without network, prints well.

Building blocks for any page: `Section`s of paragraphs, tables, figures, passages and notes, put together by
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
from lengthwise.report.tables import Cell, Estimate, Table, cell_text, settings_table
from lengthwise.samples import SampleLog

GENERATOR = '<meta name="generator" content="lengthwise">'
"""What tells our pages from other people's files."""

_CUT = Markup('<span class="cut"> … </span>')
_AROUND = 10
"""Tokens that are shown on each side of a marked one."""
_SHOWN = 3
"""Passages of a page: one of a window, those of the targets that gain most."""


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
    return _ENVIRONMENT.get_template("page.html").render(
        title=title,
        lead=[lead] if isinstance(lead, str) else lead,
        notices=notices,
        partial=partial,
        sections=sections,
        provenance=[settings_table(plain, caption=name) for name, plain in (provenance or {}).items()],
        version=lengthwise.__version__,
    )


def prose(text: str) -> Markup:
    """Plain text as HTML, `code` in backticks set as such."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


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
_ENVIRONMENT.filters |= {"prose": prose, "kinds": _kinds, "cell": _cell, "sort_key": _sort_key}


def passage_html(*, pieces: Sequence[str], marked: Mapping[int, str], near: int, caption: str) -> Markup:
    """A figure: the marked tokens with what is around them, the near tokens, and the target in bold.

    Args:
        pieces: the characters of each token up to the predicted one, which comes last; together they are the text.
        marked: token -> what its mark says when pointed at; marks are numbered in this order.
        near: the first of the tokens right before the target, which are underlined.
        caption: what the passage shows.
    """
    shown = {
        index for mark in marked for index in range(max(0, mark - _AROUND), min(near, mark + _AROUND + 1))
    }
    ranks = {index: rank for rank, index in enumerate(marked, start=1)}
    parts: list[Markup] = []
    before = -1
    for index in sorted(shown):
        if index > before + 1:
            parts.append(_CUT)
        before = index
        if index in ranks:
            seen, rest = _seen(pieces[index])
            mark = Markup('<mark title="{}">{}<sub>{}</sub></mark>{}')
            parts.append(mark.format(marked[index], seen, ranks[index], rest))
        else:
            parts.append(escape(pieces[index]))
    if near > before + 1:
        parts.append(_CUT)
    parts.append(Markup('<span class="near">{}</span>').format("".join(pieces[near:-1])))
    parts.append(Markup("<strong>{}</strong>").format(_seen(pieces[-1])[0]))
    return Markup(
        '<figure class="passage">\n<blockquote>{}</blockquote>\n<figcaption>{}</figcaption>\n</figure>'
    ).format(Markup("").join(parts), caption)


def _seen(piece: str) -> tuple[str, str]:
    """What to show of a marked token, blanks as signs, and the line end that follows it."""
    if piece.strip():
        return piece, ""
    return piece.replace(" ", "\u2423").replace("\n", "\u21b5"), "\n" if "\n" in piece else ""


def influential_passages(samples: SampleLog, model: str) -> list[Markup]:
    """Of a run of `influence`: the targets that gain most, with the tokens that greedy kept for them."""
    found: list[tuple[float, Markup]] = []
    for record in samples.values():
        losses = {place: (long, short) for place, long, short, _ in record["examined"]}
        by_gain = [(short - long, t) for t in record["targets"] for long, short in [losses[t["position"]]]]
        if not by_gain:
            continue
        gain, target = max(by_gain, key=lambda one: one[0])
        place, kept, near = target["position"], target["kept"]["greedy"], record["near"]
        long, short = losses[place]
        passage = passage_html(
            pieces=record["pieces"][: place + 1],
            marked={
                token: f"kept as number {rank}, {place - token} tokens back"
                for rank, token in enumerate(kept, 1)
            },
            near=place - near,
            caption=f"{model}, {record['document']}: the bold token has a loss of {short:.2f} nats after the {near} "
            f"underlined ones, {long:.2f} with all context, and {target['losses']['greedy'][-1]:.2f} with the "
            f"{len(kept)} marked ones, which greedy chose in the order of their numbers.",
        )
        found.append((gain, passage))
    return [passage for _, passage in sorted(found, key=lambda one: -one[0])[:_SHOWN]]
