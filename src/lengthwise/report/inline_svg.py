"""Pictures in a page: the letters that they are made of stand once for all of them, and numbers are rounded.

A picture has shapes in place of fonts, so that it looks the same everywhere, also as a file of its own. In
a page of eight pictures the same shapes came eight times, and were more than half of it.
"""

from __future__ import annotations

import re

_PICTURE = re.compile(r'<svg role="img".*?</svg>', re.DOTALL)
_LETTER = re.compile(r'<path id="([^"]+)" d="([^"]+)" transform="scale\(0\.015625\)"\s*/>')
"""The shape of a letter, as matplotlib defines it."""
_LONG = re.compile(r"(-?\d+\.\d{2})\d+")
_BARE_GROUP = re.compile(r"<g>((?:<(?:use|path|defs|/defs)\b[^>]*>)*)</g>")
_PLACES = re.compile(r'\b(?:d|x|y)="[^"]*"|translate\([^)]*\)')


def with_shared_letters(page: str) -> str:
    """The page with its pictures as small as they get: a hundredth of a point is less than a pixel."""
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
