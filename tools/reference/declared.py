"""The fields that a class declares, with the docstring under each, read from its source: nothing is imported."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Field:
    """One declared field: its annotation and default as they are written, and what its docstring says."""

    name: str
    annotation: str
    default: str | None
    """None for a field that has none."""
    meaning: str


@cache
def _module(name: str) -> tuple[ast.Module, str]:
    path = SOURCE / Path(*name.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8")), name


def _class(place: str) -> ast.ClassDef:
    module, _, name = place.rpartition(".")
    tree, _ = _module(module)
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _bases(place: str) -> list[str]:
    """The bases of a class that are lengthwise's own, as dotted names."""
    module = place.rpartition(".")[0]
    tree, _ = _module(module)
    homes = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lengthwise")
        for alias in node.names
    }
    here = {node.name: f"{module}.{node.name}" for node in tree.body if isinstance(node, ast.ClassDef)}
    return [
        {**homes, **here}[base.id]
        for base in _class(place).bases
        if isinstance(base, ast.Name) and base.id in {**homes, **here}
    ]


def doc_of(place: str) -> str:
    """The docstring of the class `module.Class`."""
    return ast.get_docstring(_class(place)) or ""


def keywords_of(place: str) -> list[Field]:
    """The keyword-only parameters of the function `module.function`, with what its docstring says of them."""
    module, _, name = place.rpartition(".")
    function = next(
        node for node in _module(module)[0].body if isinstance(node, ast.FunctionDef) and node.name == name
    )
    _, _, said = (ast.get_docstring(function) or "").partition("\nArgs:\n")
    meanings = dict(re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", said, re.MULTILINE))
    return [
        Field(
            each.arg,
            ast.unparse(each.annotation) if each.annotation else "",
            None if default is None else ast.unparse(default),
            _sentence(meanings[each.arg]),
        )
        for each, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    ]


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text[0].upper() + text[1:]


def fields_of(place: str) -> list[Field]:
    """The fields of the class `module.Class`, inherited ones first; a field declared again keeps its place."""
    found = {field.name: field for base in _bases(place) for field in fields_of(base)}
    body = _class(place).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        annotation = ast.unparse(node.annotation)
        if annotation.startswith("ClassVar") or node.target.id.startswith("_"):
            continue
        said = (
            after.value.value
            if isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
            and isinstance(after.value.value, str)
            else ""
        )
        name = node.target.id
        found[name] = Field(name, annotation, _default(node.value), " ".join(said.split()))
    return list(found.values())


def _default(value: ast.expr | None) -> str | None:
    """The default as it is written; of `field(default=...)` and `field(default_factory=...)` what they say."""
    if not (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("field", "Field")
    ):
        return None if value is None else ast.unparse(value)
    for keyword in value.keywords:
        if keyword.arg == "default":
            return ast.unparse(keyword.value)
        if keyword.arg == "default_factory":
            return {"dict": "{}", "list": "[]"}.get(ast.unparse(keyword.value), "")
    return None
