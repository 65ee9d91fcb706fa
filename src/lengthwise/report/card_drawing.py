"""How a card is drawn: 1200 x 630, as SVG that follows the reader's light or dark screen, as a PNG of each.

A number is drawn as far as it is known. A bar is solid to the lower end of its interval and pale to the upper one,
with a mark at the value; it fades where measuring found no end. A dashed frame is a number that is not known.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from lengthwise.results import Row
from lengthwise.versions import need

WIDTH, HEIGHT, EDGE = 1200, 630, 60
CARD_BEGINS = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 '
TONES = {
    "page": ("#ffffff", "#0f1318"),
    "text": ("#14181d", "#eef2f6"),
    "quiet": ("#5a6572", "#9ba7b4"),
    "rail": ("#edf0f3", "#1e252d"),
    "claimed": ("#a9b3bd", "#5f6b77"),
    "sound": ("#0072b2", "#4fb0ee"),
    "used": ("#d55e00", "#f2924c"),
}
"""The colour of everything, light and dark."""
PALE, FADE = 0.32, 36
"""The opacity of what the interval leaves open; pixels in which a bar without an end fades."""
_FONTS = "Inter,'Segoe UI',system-ui,-apple-system,'Helvetica Neue',Arial,'DejaVu Sans',sans-serif"
# The font that matplotlib brings is wide.
_NARROW = 0.92
_GAP = 60


class _Box(NamedTuple):
    """A rectangle, filled or a dashed frame."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    opacity: float = 1.0
    frame: bool = False


class _Words(NamedTuple):
    """Text on its base line."""

    x: float
    y: float
    text: str
    size: float
    tone: str = "text"
    bold: bool = False
    anchor: str = "start"


class Line(NamedTuple):
    """A number and its bar."""

    label: str
    tone: str
    value: float | None
    text: str
    small: str = ""
    """The interval; of a number that is not known, why."""
    low: float | None = None
    high: float | None = None
    end: float = 0.0
    """Where measuring ended."""
    open: bool = False
    """Whether measuring ended before the interval did."""
    at_least: bool = False
    """Whether the number is where measuring ended."""
    again: tuple[int, int] | None = None
    """The stretch behind a gap where it is so once more."""
    side: str = ""
    """Whose it is, of two models."""

    def known(self, row: Row, text: str, small: str = "") -> Line:
        """With the value and the interval of a row."""
        return self._replace(value=row.value, text=text, small=small, low=row.ci_low, high=row.ci_high)


class _Panel(NamedTuple):
    """Lines on one scale from 0 to `top`."""

    heading: str
    lines: Sequence[Line]
    top: float
    ticks: Sequence[int]
    mark: float | None
    """A value with a line through all bars."""


def panel(heading: str, lines: Sequence[Line], *, mark: float | None = None) -> _Panel:
    """Lines from 0 to the greatest of them, and to the mark."""
    top = max([mark or 0.0, *(line.high or line.value or 0.0 for line in lines)], default=0.0) or 1.0
    return _Panel(heading, [line._replace(end=line.end or top) for line in lines], top, (), mark)


def token_panel(lines: Sequence[Line], mark: float | None) -> _Panel:
    """Numbers of tokens, with ticks at multiples of a power of two."""
    top = max(max(line.end, line.value or 0.0, line.high or 0.0) for line in lines)
    step = next(2**power for power in range(60) if top <= 5 * 2**power)
    return _Panel("", lines, top, range(0, int(top) + 1, step), mark)


class Card(NamedTuple):
    """What a card says."""

    title: str
    about: str
    """What was asked."""
    sentence: str
    """The answer with every number: the alternative text."""
    verdict: str
    rows: Sequence[Sequence[_Panel]]
    """The first takes the room that the others leave."""
    small: str
    badge: str


def shapes(card: Card) -> list[_Box | _Words]:
    """The picture, from the back to the front."""
    says = _balanced(card.verdict, 78)
    found: list[_Box | _Words] = [
        _Box(0, 0, WIDTH, HEIGHT, "page"),
        _Words(EDGE, 64, "lengthwise", 21, "sound", bold=True),
        _Words(WIDTH - EDGE, 64, card.about, 21, "quiet", anchor="end"),
        _fitted(_Words(EDGE, 126, card.title, 52, bold=True), WIDTH - 2 * EDGE),
        *(_Words(EDGE, 172 + 32 * index, line, 25, "quiet") for index, line in enumerate(says)),
        _fitted(_Words(EDGE, HEIGHT - 26, card.small, 15, "quiet"), 910),
        _Words(WIDTH - EDGE, HEIGHT - 26, "pale: 95 % interval", 15, "quiet", anchor="end"),
    ]
    y = 172 + 32 * len(says)
    others = [58 + 32 * max(len(panel.lines) for panel in row) for row in card.rows[1:]]
    for row, height in zip(card.rows, [HEIGHT - 66 - y - sum(others), *others], strict=True):
        width = (WIDTH - 2 * EDGE + _GAP) / len(row)
        for index, panel in enumerate(row):
            found += _panel_shapes(panel, EDGE + width * index, y, width - _GAP, height)
        y += height
    return found


def _balanced(text: str, most: int) -> list[str]:
    """One line, or two of about one length; cut with a mark where two are not enough."""
    if len(text) > most:
        most = next((n for n in range(len(text) // 2, most) if len(textwrap.wrap(text, n)) == 2), most)
    return textwrap.wrap(text, most, max_lines=2, placeholder=" …")


def _fitted(words: _Words, width: float) -> _Words:
    """Made smaller, and then cut with a mark, where it does not fit."""
    letter, text = 0.69 if words.bold else 0.58, words.text
    most = int(2 * width / (letter * words.size))
    text = text if len(text) <= most else f"{text[: most - 1]}…"
    return words._replace(text=text, size=min(words.size, width / (letter * max(1, len(text)))))


def _panel_shapes(panel: _Panel, x: float, y: float, width: float, height: float) -> Iterator[_Box | _Words]:
    wide, two = width > WIDTH / 2, any(line.side for line in panel.lines)
    if panel.heading:
        yield _Words(x, y + 20, panel.heading, 19, "quiet")
        y, height = y + 34, height - 44
    if not panel.lines:
        yield _Words(x, y + 24, "not measured", 18)
        return
    pitch = min((height - 34 * bool(panel.ticks)) / len(panel.lines), 96)
    bar, size = min(0.62 * pitch, 52), 22 if two else 25 if wide else min(18, 0.9 * pitch)
    # The widths of the small print, the numbers and the labels, in pixels.
    small = max(
        9 * len(line.small) + 14 if line.small and line.value is not None else 0 for line in panel.lines
    )
    number = 0.62 * size * max(len(line.text) for line in panel.lines) + small + 8
    label, fade = 20 + 10 * max(len(line.label) for line in panel.lines), 18
    if wide:
        label, number, fade = 190, number if two else 230, FADE
    left, end, scale = x + label, x + width, (width - label - number - fade) / panel.top
    if panel.mark:
        yield _Box(left + scale * panel.mark - 1, y, 2, pitch * len(panel.lines), "claimed")
    for index, line in enumerate(panel.lines):
        # Two sides of one number stand together.
        middle = y + pitch * (index + 0.5 + ((-0.08 if index % 2 else 0.16) if two else 0))
        known = line.value is not None
        yield from _bar(line, left, middle - bar / 2, bar, scale)
        why = textwrap.wrap("" if known else line.small, 70, max_lines=2 - two, placeholder=" …")
        yield from (_Words(left + 14, middle + 5 * two + 20 * n, t, 15, "quiet") for n, t in enumerate(why))
        yield _Words(left - 12, middle + 6, line.side, 17, "quiet", anchor="end")
        if not (two and index % 2):
            yield _Words(x, middle + 7, line.label, size)
        if two or not wide:
            yield _Words(end - small, middle + 7, line.text, size, bold=True, anchor="end")
            yield _Words(end, middle + 7, line.small if known else "", 15, "quiet", anchor="end")
        else:
            yield _Words(
                end, middle + (2 if known else 11), line.text, 34 if known else 28, "text", True, "end"
            )
            yield _Words(end, middle + 25, line.small if known else "", 17, "quiet", anchor="end")
    for tick in panel.ticks:
        below = y + pitch * len(panel.lines) + 20
        yield _Words(left + scale * tick, below, f"{tick:,}", 17, "quiet", anchor="middle")


def _bar(line: Line, x: float, y: float, height: float, scale: float) -> Iterator[_Box | _Words]:
    if line.value is None:
        yield _Box(x, y, scale * line.end, height, "page")
        yield _Box(x, y, scale * line.end, height, "quiet", frame=True)
        return
    value = scale * max(0.0, line.value)
    yield _Box(x, y, scale * line.end, height, "rail")
    if line.low is None or line.high is None:
        yield _Box(x, y, value, height, line.tone, 1.0 if line.tone == "claimed" else PALE)
        return
    low, high = (scale * max(0.0, each) for each in (line.low, line.end if line.open else line.high))
    yield _Box(x, y, low, height, line.tone)
    yield _Box(x + low, y, high - low, height, line.tone, PALE)
    for step in range(9 if line.open else 0):
        yield _Box(x + high + step * FADE / 9, y, FADE / 9, height, line.tone, PALE * (0.9 - step / 10))
    if not line.at_least:
        yield _Box(x + value - 2, y - height / 10, 4, 1.2 * height, "text")
    if line.again is not None:
        # It has no interval of its own, and begins where that of the number ends.
        begin, end = max(high, scale * line.again[0]), scale * line.again[1]
        yield _Box(x + begin, y, max(0.0, end - begin), height, line.tone, PALE)
        if end - begin > 60:
            yield _Words(x + (begin + end) / 2, y + height / 2 + 5, "again", 15, anchor="middle")


def svg(drawing: Sequence[_Box | _Words], alt: str) -> str:
    """The picture as SVG."""
    light, dark = ("".join(f".{tone}{{color:{pair[n]}}}" for tone, pair in TONES.items()) for n in (0, 1))
    parts = [
        f'{CARD_BEGINS}{WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" role="img" aria-label={quoteattr(alt)} font-family="{_FONTS}">',
        f"<style>{light}@media(prefers-color-scheme:dark){{{dark}}}</style>",
    ]
    for each in drawing:
        place = f'class="{each.tone}" x="{each.x:.6g}" y="{each.y:.6g}"'
        if isinstance(each, _Words):
            weight = ' font-weight="700"' if each.bold else ""
            look = f'font-size="{each.size:.3g}" text-anchor="{each.anchor}" fill="currentColor"{weight}'
            parts += [f"<text {place} {look}>{escape(each.text)}</text>"] if each.text else []
            continue
        look = f'fill="currentColor" opacity="{each.opacity:.2g}"'
        if each.frame:
            look = 'fill="none" stroke="currentColor" stroke-width="2" stroke-dasharray="7 6"'
        parts.append(f'<rect {place} width="{each.width:.6g}" height="{each.height:.6g}" {look}/>')
    return "\n".join([*parts, "</svg>", ""])


def png(drawing: Sequence[_Box | _Words], *, dark: bool = False) -> bytes:
    """The picture as PNG."""
    need("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.patches import PathPatch, Rectangle
    from matplotlib.textpath import TextPath
    from matplotlib.transforms import Affine2D

    from lengthwise.report.drawing import drawable

    figure = Figure(figsize=(WIDTH / 100, HEIGHT / 100), dpi=100)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, WIDTH), ylim=(HEIGHT, 0))
    axes.axis("off")
    for each in drawing:
        color = TONES[each.tone][dark]
        if isinstance(each, _Box):
            look: dict[str, Any] = {"fc": color, "lw": 0, "alpha": each.opacity}
            if each.frame:
                look = {"fill": False, "ec": color, "lw": 1.4, "ls": (0, (5, 4))}
            axes.add_patch(Rectangle((each.x, each.y), each.width, each.height, **look))
        elif each.text:
            font = FontProperties(family="DejaVu Sans", weight=700 if each.bold else 400)
            text = drawable(each.text, font).replace("$", r"\$")
            path = TextPath((0, 0), text, size=each.size, prop=font)
            before = {"start": 0.0, "middle": 0.5, "end": 1.0}[each.anchor] * path.get_extents().x1
            place = Affine2D().translate(-before, 0).scale(_NARROW, -1).translate(each.x, each.y)
            axes.add_patch(PathPatch(place.transform_path(path), fc=color, lw=0))
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": None}, pil_kwargs={"optimize": True})
    return stream.getvalue()
