"""A card in text: the words of a line, and Markdown with bars of blocks for a pull request."""

from __future__ import annotations

from lengthwise.report.card_drawing import Card, Line

_BLOCKS = 40
"""Characters of a bar."""


def line_words(line: Line) -> str:
    """A number with its interval, and the stretch behind a gap."""
    if line.value is None and line.label.endswith("up to"):
        return f"{line.label} an unknown length"
    again = "" if line.again is None else "and again from {:,} to {:,}".format(*line.again)
    known = line.small if line.value is not None else ""
    return " ".join(filter(None, (line.label, line.text, known, again)))


def markdown(card: Card) -> str:
    """The card for a pull request, with bars of text: a comment shows no picture of a run's folder."""
    # Of a comparison the sentence says it all.
    verdict = [] if card.verdict[1:-1] in card.sentence else [card.verdict, ""]
    lines = [f"### {card.sentence}", "", *verdict]
    for panel in (panel for row in card.rows for panel in row):
        lines += [f"{panel.heading}:", ""] if panel.heading else []
        labels = [f"{line.label} {line.side}".strip() for line in panel.lines]
        lines.append("```text")
        for label, line in zip(labels, panel.lines, strict=True):
            numbers = line_words(line._replace(label=""))
            lines.append(f"{label:<{max(map(len, labels))}}  {_blocks(line, panel.top)}  {numbers}")
        lines += ["```", ""]
    return "\n".join([*lines, f"<sub>{card.small}</sub>", ""])


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
