"""What mkdocs does besides.

Links to files outside `docs/` lead to copies of these files in the site. Long names in tables break at their joints,
options and words of commands nowhere. Intervals get a line of their own where room is short. Long names of rows get
room.
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

    return _LONG_ROW.sub('<td class="row"', _CELL.sub(broken, html))
