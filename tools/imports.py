"""Fail on an import in `src/lengthwise` that runs against the order of its packages, or in a circle (`make lint`).

All imports count: those in functions, and those under TYPE_CHECKING too, because whoever reads a signature has to
look there. The names in a package's `__init__.pyi` are its imports, made at their first use. A package hands on names
of its modules, so an import of the package by its own modules is no part of a circle.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCES = Path("src")
ROOT = "lengthwise"
FLOORS = (
    ("__main__",),
    ("cli",),
    ("catalogue",),
    ("report",),
    ("training", "evaluation"),
    ("measure", "testing"),
    ("subjects",),
    ("checkpoints",),
    ("alignment", "positions", "text"),
    ("runs",),
    ("run_files",),
    ("results", "samples"),
    ("progress",),
    ("settings", "files", "machine", "yaml_text"),
    ("versions",),
    ("errors",),
)
"""Packages, and modules outside of packages, from the highest floor. Each imports itself and lower floors.

`lengthwise` itself, whose names come from all of them, is on none: of it only the version is imported, and
what makes the faces of packages.
"""
NEVER = {"report": ("subjects", "checkpoints", "training", "evaluation")}
"""What a package does not import although it lies lower. Pages are made from run folders, never from models."""

_FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}


def modules(sources: Path) -> dict[str, Path]:
    """Every module of the package, by its name."""
    found = {}
    for path in sorted((sources / ROOT).rglob("*.py")):
        parts = path.relative_to(sources).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def _imported(text: str) -> list[tuple[str, str | None]]:
    """Each import of a file as (module, name or None). The module of a relative import begins with "."."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(each.name, None) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [("." * node.level + (node.module or ""), each.name) for each in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "import_module":
            named = [each.value for each in node.args[:1] if isinstance(each, ast.Constant)]
            found += [(name, None) for name in named if isinstance(name, str)]
    return found


def _package(module: str) -> str:
    """The package below `lengthwise` that a module is in, or the module outside of packages; "" for the root."""
    return module.partition(".")[2].partition(".")[0]


def against_the_order(module: str, other: str) -> str | None:
    """What is wrong with an import of `other` by a module; None if nothing is."""
    if other.split(".")[0] == "lengthwise_studies":
        return "the studies use the package, not the other way round"
    own, theirs = _package(module), _package(other)
    if own == theirs or not own:
        return None
    for name in (own, theirs):
        if name and name not in _FLOOR:
            return f"{name} has no place in FLOORS (tools/imports.py)"
    if not theirs:
        return "lengthwise itself is above all: import from the module that has the name"
    if theirs in NEVER.get(own, ()):
        return f"{own} never imports {theirs}"
    return None if _FLOOR[own] < _FLOOR[theirs] else f"{own} is not above {theirs}"


def _edges(module: str, path: Path, known: Mapping[str, Path]) -> Iterator[tuple[str, str | None]]:
    """(what a module imports of ours, what is wrong with that)."""
    for name, given in _imported(path.read_text(encoding="utf-8")):
        if name.startswith("."):
            yield name, "a relative import; write the whole name"
        elif name.split(".")[0] in (ROOT, "lengthwise_studies"):
            other = f"{name}.{given}" if f"{name}.{given}" in known else name
            # `import lengthwise` is for its version; a name of its stub would come from any floor.
            fine = other == ROOT and given in (None, "__version__", "lazy_names")
            yield other, None if fine else against_the_order(module, other)


def faults(sources: Path = SOURCES) -> list[str]:
    """Each import against the order, and a circle if there is one."""
    known, found = modules(sources), []
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        edges = list(_edges(module, path, known))
        # The root's stub names everything.
        stub = path.with_suffix(".pyi")
        if module != ROOT and path.stem == "__init__" and stub.exists():
            edges += _edges(module, stub, known)
        found += [f"{module} imports {other}: {fault}" for other, fault in edges if fault]
        own = (other for other, _ in _edges(module, path, known) if other in known)
        graph[module] = {other for other in own if not f"{module}.".startswith(f"{other}.")}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append("modules import each other in a circle: " + " -> ".join(reversed(error.args[1])))
    return found


def main() -> int:
    """Print the faults; the exit code."""
    found = faults()
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
