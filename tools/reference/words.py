"""Markdown for the generated pages: tables whose cells keep their code, types and defaults in words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping, Sequence

# The types of `lengthwise.settings` and of recipes, by what they are.
_NUMBERS = {
    **dict.fromkeys(("Whole", "Seed", "Count", "Steps", "Tokens"), "int"),
    **dict.fromkeys(("Finite", "Positive", "NotNegative", "Fraction"), "float"),
}


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table. Cells are Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines) + "\n"


def code(text: str) -> str:
    """Text as code, nothing for nothing."""
    return f"`{text}`" if text else ""


def plain(text: str) -> str:
    """Prose with its code kept; what Markdown would read in the rest is escaped."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([<*\[\]])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def type_words(annotation: str, literals: Mapping[str, Sequence[str]] = {}) -> str:
    """An annotation in words: `int` or null; one of `a`, `b`; a list of `int`. `literals` are named choices."""
    return _words(ast.parse(annotation, mode="eval").body, literals)


def _words(node: ast.expr, literals: Mapping[str, Sequence[str]]) -> str:
    if isinstance(node, ast.BinOp):
        return f"{_words(node.left, literals)} or {_words(node.right, literals)}"
    if isinstance(node, ast.Constant):
        return "null" if node.value is None else code(str(node.value))
    if isinstance(node, ast.Subscript):
        name = ast.unparse(node.value)
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if name == "Literal":
            return ", ".join(code(str(ast.literal_eval(part))) for part in inner)
        if name == "Annotated":
            return _words(inner[0], literals)
        if name in ("tuple", "list"):
            parts = [part for part in inner if ast.unparse(part) != "..."]
            many = len(inner) > len(parts) or name == "list"
            words = " and ".join(_words(part, literals) for part in parts)
            return f"list of {words}" if many else f"pair of {_words(parts[0], literals)}"
        if name == "dict":
            return "mapping"
    name = ast.unparse(node)
    if name in literals:
        return ", ".join(map(code, literals[name]))
    return code(_NUMBERS.get(name, name))


def default_words(default: str | None) -> str:
    """A default as YAML has it; "required" without one."""
    if default is None:
        return "required"
    if default == "" or re.fullmatch(r"\w+\(\)", default):
        return "its defaults"
    value = ast.literal_eval(default)
    if isinstance(value, tuple):
        value = list(value)
    words = {None: "null", True: "true", False: "false"}
    return code(words[value] if value is None or isinstance(value, bool) else str(value))
