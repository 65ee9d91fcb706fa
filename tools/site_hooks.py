"""What mkdocs does besides: links to files outside `docs/` lead to copies of these files in the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)")
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
