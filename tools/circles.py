"""Fail on modules of `src/lengthwise` that import each other in a circle (`make lint`).

All imports count, those in functions and under TYPE_CHECKING too. A package hands on names of its modules, so an
import of the package by its own modules is no part of a circle.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path("src")


def modules() -> dict[str, Path]:
    """Every module of the package, by its name."""
    found = {}
    for path in sorted((SOURCES / "lengthwise").rglob("*.py")):
        parts = path.relative_to(SOURCES).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, known: Container[str]) -> Iterator[str]:
    """Names of the `known` modules that a file imports; the package writes no relative imports."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            inner = (f"{node.module}.{each.name}" for each in node.names)
            names = [name if name in known else str(node.module) for name in inner]
        else:
            continue
        yield from (name for name in names if name in known)


def main() -> int:
    """Print a circle, if there is one; the exit code."""
    known = modules()
    graph = {
        name: {other for other in imported(path, known) if not f"{name}.".startswith(f"{other}.")}
        for name, path in known.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        print("modules import each other in a circle: " + " -> ".join(reversed(error.args[1])))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
