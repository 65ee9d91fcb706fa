"""Check a built site: `python tools/site_check.py site`.

No page may load a font, script, style or picture from elsewhere. mkdocs itself checks links and anchors (`--strict`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

# Attributes that a browser loads without a click. A link of <a> is not among them.
_LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "object": "data"}


class _Loads(HTMLParser):
    """Collects what a page loads from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get(_LOADED.get(tag, "")) or ""
        if target.startswith(("http:", "https:", "//")):
            self.found.append(target)


def loads_from_elsewhere(site: Path) -> Iterator[str]:
    """Each page and style sheet with the address that it loads."""
    for page in sorted(site.rglob("*.html")):
        parser = _Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        yield from (f"{page}: {target}" for target in parser.found)
    for style in sorted(site.rglob("*.css")):
        text = style.read_text(encoding="utf-8")
        yield from (
            f"{style}: loads {mark}"
            for mark in ("url(http", 'url("http', "url(//", "@import")
            if mark in text
        )


if __name__ == "__main__":
    found = list(loads_from_elsewhere(Path(sys.argv[1])))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
