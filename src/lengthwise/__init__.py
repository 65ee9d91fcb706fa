"""lengthwise: do a language model's predictions hold as its context grows? Measure it, train for it.

The names in `__init__.pyi` are loaded on first use, so that `import lengthwise` and `lengthwise --help` stay quick.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def lazy_names(package: str, file: str) -> tuple[dict[str, str], Callable[[str], Any]]:
    """The names that the stub beside a package's `__init__.py` imports, with their modules; and `__getattr__`."""
    homes = {
        statement.names[0].name: str(statement.module)
        for statement in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ImportFrom)
    }

    def load(name: str) -> Any:
        if name in homes:
            return getattr(importlib.import_module(homes[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return dict(sorted(homes.items())), load


_HOME, __getattr__ = lazy_names(__name__, __file__)
__all__ = [*_HOME]  # pyright: ignore[reportUnsupportedDunderAll]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
