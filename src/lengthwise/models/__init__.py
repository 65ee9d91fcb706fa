"""Models: found, loaded, read, extended and saved.

The names in `__init__.pyi` are loaded on first use: nothing here imports torch before.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

_HOME = {
    statement.names[0].name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(statement, ast.ImportFrom)
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
