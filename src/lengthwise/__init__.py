"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it.

The names in `__init__.pyi` are loaded on first use, so that `import lengthwise` and `lengthwise --help` stay quick.
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"

_HOME = {
    statement.names[0].name: str(statement.module)
    for statement in ast.parse(Path(__file__).with_suffix(".pyi").read_text()).body
    if isinstance(statement, ast.ImportFrom)
}
__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'lengthwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
