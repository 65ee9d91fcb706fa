"""Passages of text on a page, with the tokens that carried a prediction marked. All text is escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_CUT = Markup('<span class="cut"> … </span>')
_AROUND = 10
"""Tokens that are shown on each side of a marked one."""


@dataclass(frozen=True, kw_only=True)
class Passage:
    """The tokens up to a predicted one, which comes last.

    Args:
        pieces: the characters of each token, in order; together they are the text.
        marked: token -> what its mark says when pointed at; marks are numbered in this order.
        near: the first of the tokens right before the target, which are underlined.
        caption: what the passage shows.
    """

    pieces: Sequence[str]
    marked: Mapping[int, str]
    near: int
    caption: str


def to_html(passage: Passage) -> Markup:
    """A figure: the marked tokens with what is around them, the near tokens, and the target in bold."""
    target = len(passage.pieces) - 1
    shown = {
        index
        for mark in passage.marked
        for index in range(max(0, mark - _AROUND), min(passage.near, mark + _AROUND + 1))
    }
    ranks = {index: rank for rank, index in enumerate(passage.marked, start=1)}
    parts: list[Markup] = []
    before = -1
    for index in sorted(shown):
        if index > before + 1:
            parts.append(_CUT)
        before = index
        piece = passage.pieces[index]
        if index in ranks:
            title, (seen, rest) = passage.marked[index], _seen(piece)
            parts.append(
                Markup('<mark title="{}">{}<sub>{}</sub></mark>{}').format(title, seen, ranks[index], rest)
            )
        else:
            parts.append(escape(piece))
    if passage.near > before + 1:
        parts.append(_CUT)
    parts.append(
        Markup('<span class="near">{}</span>').format("".join(passage.pieces[passage.near : target]))
    )
    parts.append(Markup("<strong>{}</strong>").format(_seen(passage.pieces[target])[0]))
    return Markup(
        '<figure class="passage">\n<blockquote>{}</blockquote>\n<figcaption>{}</figcaption>\n</figure>'
    ).format(Markup("").join(parts), passage.caption)


def _seen(piece: str) -> tuple[str, str]:
    """What to show of a marked token, blanks as signs, and the line end that follows it."""
    if piece.strip():
        return piece, ""
    return piece.replace(" ", "\u2423").replace("\n", "\u21b5"), "\n" if "\n" in piece else ""
