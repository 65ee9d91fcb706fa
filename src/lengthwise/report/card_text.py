"""A card where a picture is too large: a badge, and Markdown with bars of text."""

from __future__ import annotations

from xml.sax.saxutils import escape, quoteattr

from lengthwise.report.card_drawing import Card, Line
from lengthwise.report.writers import markdown_escape

_BLOCKS = 40
"""Characters of a bar."""
_PIXELS = {**dict.fromkeys(" ,.il", 3.8), **dict.fromkeys("[]:tfr·", 4.6), **dict.fromkeys("mw≥%+", 9.3)}
"""The widths of letters of a badge that are not of the common width, in Verdana of 11 pixels."""


def badge(card: Card) -> str:
    """A small SVG for a README."""
    name = "long context"
    left, right = (
        around + sum(_PIXELS.get(each, 6.9) for each in text)
        for around, text in ((11, name), (14, card.badge))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right:g}" height="20" role="img" '
        f"aria-label={quoteattr(card.sentence)} font-family=\"Verdana,'DejaVu Sans',sans-serif\" "
        f'font-size="11" fill="#fff"><rect width="{left + right:g}" height="20" rx="3" fill="#0072b2"/>'
        f'<path d="M3 0H{left:g}v20H3a3 3 0 0 1-3-3V3a3 3 0 0 1 3-3z" fill="#434c56"/>'
        f'<text x="7" y="14" textLength="{left - 13:g}">{name}</text>'
        f'<text x="{left + 7:g}" y="14" textLength="{right - 14:g}">{escape(card.badge)}</text></svg>\n'
    )


def line_words(line: Line) -> str:
    """A number with its interval, and the stretch behind a gap."""
    if line.value is None:
        return f"{line.label.removesuffix(' up to')}: {line.text}" if line.label else line.text
    again = "" if line.again is None else "and again from {:,} to {:,}".format(*line.again)
    return " ".join(filter(None, (line.label, line.text, line.small, again)))


def markdown(card: Card) -> str:
    """The card for a pull request, with bars of text: a comment shows no picture of a run's folder."""
    # Of a comparison the sentence says it all.
    verdict = [] if card.verdict[1:-1] in card.sentence else [card.verdict, ""]
    lines = [f"### {markdown_escape(card.sentence)}", "", *map(markdown_escape, verdict)]
    for panel in (panel for row in card.rows for panel in row):
        lines += [f"{panel.heading}:", ""] if panel.heading else []
        labels = [f"{line.label} {line.side}".strip() for line in panel.lines]
        lines.append("```text")
        for label, line in zip(labels, panel.lines, strict=True):
            numbers = line_words(line._replace(label=""))
            lines.append(f"{label:<{max(map(len, labels))}}  {_blocks(line, panel.top)}  {numbers}")
        lines += ["```", ""]
    return "\n".join([*lines, f"<sub>{markdown_escape(card.small)}</sub>", ""])


def _blocks(line: Line, top: float) -> str:
    """The bar of a line: full blocks to the lower end of its interval, pale ones to the upper end."""
    if line.value is None:
        return "?".ljust(_BLOCKS)
    low = line.low if line.low is not None else line.value if line.tone == "claimed" else 0.0
    high = line.end if line.open else line.value if line.high is None else line.high
    ends = (low, high, *(line.again or (0, 0)))
    solid, pale, begin, end = (round(_BLOCKS * max(0.0, each) / top) for each in ends)
    shades = ("█" if n < solid else "░" if n < pale or begin <= n < end else " " for n in range(_BLOCKS))
    return f"{''.join(shades).rstrip()}{'→' if line.open else ''}".ljust(_BLOCKS)
