"""Model folders that tests change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def rewritten(folder: Path, name: str = "config.json", **changed: Any) -> str:
    """The folder, with other values in one of its files."""
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | changed))
    return str(folder)
