"""Passages of a page: the tokens that carried a prediction, marked in their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from lengthwise.samples import SampleLog

_CUT = Markup('<span class="cut"> … </span>')
_AROUND = 10
"""Tokens that are shown on each side of a marked one."""
_SHOWN = 3
"""Passages of a page: one of a window, those of the targets that gain most."""


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
    """Of a run of `Influence`: the targets that gain most, with the tokens that greedy kept for them."""
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
