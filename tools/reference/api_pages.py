"""The public names of each package; mkdocstrings fills in signatures and docstrings when the site is built."""

from __future__ import annotations

import importlib
import pkgutil

import lengthwise
from tools.reference.words import code, plain, table

PACKAGES = {
    "alignment": "The objective and its formulas",
    "measure": "Measurements",
    "training": "Training",
    "checkpoints": "Checkpoints",
    "subjects": "Subjects",
    "positions": "Positions",
    "evaluation": "Evaluation",
    "text": "Text",
}
"""Package of lengthwise -> the title of its page."""


def pages() -> dict[str, str]:
    """File name -> the page, in Markdown."""
    return {"index.md": _index()} | {f"{name}.md": _page(name, title) for name, title in PACKAGES.items()}


def _index() -> str:
    names = [
        (f"[`{name}`][{lengthwise._HOME[name]}.{name}]", code(lengthwise._HOME[name]))
        for name in lengthwise.__all__
    ]
    packages = [
        (f"[`lengthwise.{name}`]({name}.md)", title, plain(_doc(f"lengthwise.{name}")))
        for name, title in PACKAGES.items()
    ]
    parts = [
        "# Python API\n",
        "What is listed here is public. Modules and names that these pages leave out can change without notice.\n",
        table(["package", "", "what"], packages),
        "## Names of `lengthwise` itself\n",
        "`from lengthwise import NAME` works for these; torch is imported at the first use.\n",
        table(["name", "documented in"], names),
        "## Errors, results and settings\n",
    ]
    for module in ("lengthwise.errors", "lengthwise.results", "lengthwise.settings"):
        names_here = [name for name in lengthwise.__all__ if lengthwise._HOME[name] == module]
        parts += [_directive(f"{module}.{name}") for name in names_here]
    return "\n".join(parts)


def _page(package: str, title: str) -> str:
    place = f"lengthwise.{package}"
    module = importlib.import_module(place)
    parts = [f"# {title}: `{place}`\n", f"{_doc(place)}\n"]
    names = getattr(module, "__all__", None)
    if names is not None:
        return "\n".join([*parts, *(_directive(f"{place}.{name}") for name in names)])
    public = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == place]
    tables = [
        name
        for name in vars(module)
        if name.isupper() and not name.startswith("_") and name != "TYPE_CHECKING"
    ]
    parts += [_directive(f"{place}.{name}") for name in (*tables, *public) if not name.startswith("_")]
    if not public:
        homes = sorted(one.name for one in pkgutil.iter_modules(module.__path__))
        parts += [_directive(f"{place}.{name}") for name in homes]
    return "\n".join(parts)


def _doc(place: str) -> str:
    doc = importlib.import_module(place).__doc__ or ""
    return " ".join(doc.strip().partition("\n\n")[0].split())


def _directive(place: str) -> str:
    # The values of a table are in tables.md.
    is_table = place.rpartition(".")[2].isupper()
    return f"::: {place}\n" + ("    options:\n      show_attribute_values: false\n" if is_table else "")
