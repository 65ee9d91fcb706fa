"""What mkdocs does besides.

Links to files outside `docs/` lead to copies of these files in the site. Long names in tables break at their joints,
options and words of commands nowhere. Intervals get a line of their own where room is short. Long names of rows get
room. On a phone the rows of a table of three columns and more are cards, in which each cell follows its heading.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
_OPTION = r"(?<![\w-])--[a-z][\w-]*(?![^<]*>)"
_CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
_LONG_NAME = re.compile(r"(?<=<code>)[^<]{25,}(?=</code>)")
_COMMANDS_OR_OPTION = re.compile(rf'(<div class="language-bash\b.*?</div>)|{_OPTION}', re.DOTALL)
# A browser may break after each hyphen. Words longer than this do not fit on a phone.
_HYPHENATED = re.compile(r"(?<![\w./-])(?=[\w./]*-)[\w./-]{2,36}(?![\w./-])(?![^<]*>)")
_INTERVAL = re.compile(r"(?<=\d )\[[^\[\]<]*\](?=</td>)")
_TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
_LONG_ROW = re.compile(r"(?<=<tr>\n)<td(?=>[^<]{15})")
ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Point links that leave `docs/` to `files/PATH.txt`, so that a browser shows the file."""

    def moved(match: re.Match[str]) -> str:
        folder = posixpath.dirname(f"docs/{page.file.src_uri}")
        path = posixpath.normpath(posixpath.join(folder, match[1]))
        if path.startswith("docs/") or not (ROOT / path).is_file():
            return match[1]
        copy = f"files/{path}.txt"
        if files.get_file_from_path(copy) is None:
            files.append(File.generated(config, copy, abs_src_path=str(ROOT / path)))
        return posixpath.relpath(f"docs/{copy}", folder)

    return _LINK.sub(moved, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Break long names in table cells after a slash, colons or an underscore. Keep options and intervals whole.

    Mark first cells with more than a few letters as `row`.
    """
    kept = r'<span class="option">\g<0></span>'
    html = _COMMANDS_OR_OPTION.sub(
        lambda found: _HYPHENATED.sub(kept, found[0]) if found[1] else found.expand(kept), html
    )

    def broken(cell: re.Match[str]) -> str:
        spaced = _INTERVAL.sub(r'<span class="interval">\g<0></span>', cell[0])
        return _LONG_NAME.sub(lambda name: re.sub("::|[/_]", r"\g<0><wbr>", name[0]), spaced)

    return _TABLE.sub(_as_cards, _LONG_ROW.sub('<td class="row"', _CELL.sub(broken, html)))


def _as_cards(table: re.Match[str]) -> str:
    """Give each cell the words of its heading, which the style sheet shows where a row is a card.

    Where the first cell of a row is empty, the row has the name of the row above.
    """
    names = [re.sub(r'<[^>]*>|"', "", heading) for heading in re.findall(r"<th\b[^>]*>(.*?)</th>", table[0])]
    if len(names) < 3:
        return table[0]

    name = ""

    def labelled(row: re.Match[str]) -> str:
        nonlocal name
        labels = iter(names)
        cells = re.sub(r"<td\b", lambda cell: f'{cell[0]} data-label="{next(labels)}"', row[0])
        if first := re.search(r"<td\b[^>]*>(.*?)</td>", cells):
            name = re.sub(r'<[^>]*>|"', "", first[1]) or name
        return cells.replace("></td>", f' data-above="{name}"></td>', 1) if first and not first[1] else cells

    return re.sub(
        r"<tr>.*?</tr>", labelled, table[0].replace("<table>", "<table data-cards>"), flags=re.DOTALL
    )
