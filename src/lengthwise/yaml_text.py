"""YAML without two of its traps: duplicate keys are errors, and 1e-5 is a number."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from lengthwise.errors import UsageError, reason, shown


class _Loader(yaml.SafeLoader):
    """PyYAML's reader of plain values, which refuses duplicate keys."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            if key.value in seen:
                problem = f"duplicate key {key.value!r}"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back equal: the text "1e-5" gets quotes."""


yaml.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
    Loader=_Loader,
    Dumper=_Dumper,
)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping; UsageError if the file is missing, is not YAML, has duplicate keys or something else."""
    try:
        return parse_yaml(path.read_text(encoding="utf-8"), source=str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {reason(error)}", expected="a YAML file") from error


def parse_yaml(text: str, *, source: str) -> dict[str, Any]:
    """`read_yaml` of a text; `source` names it in errors."""
    value = _load(text, source)
    if value is not None and not isinstance(value, dict):
        raise UsageError(f"{source} holds a {type(value).__name__}", expected="settings (key: value)")
    return value or {}


def to_yaml(value: Mapping[str, Any]) -> str:
    """A mapping as YAML, keys in the order given."""
    return yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def each_once(assignments: Sequence[str]) -> Sequence[str]:
    """The assignments of a command line; UsageError if one path is given twice."""
    paths = [each.partition("=")[0].replace("-", "_") for each in assignments]
    for number, path in enumerate(paths):
        if path in paths[:number]:
            source = f"--set {shown(assignments[number])}"
            raise UsageError(f"{source}: {path} is given twice", expected="one value", fix="leave one out")
    return assignments


def override(settings: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply `section.key=value` assignments (values are YAML) to a copy of `settings`.

    Of a path that is given again the last value holds.

    UsageError for an assignment without `=`, or a path through what is no section.
    """
    result = copy.deepcopy(dict(settings))
    for assignment in assignments:
        path, sign, text = assignment.partition("=")
        source = f"--set {shown(assignment)}"
        if not sign or not path:
            raise UsageError(f"{source} has no value", expected="section.key=value")
        path = path.replace("-", "_")
        *sections, key = path.split(".")
        target = result
        for section in sections:
            inner = target.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{source}: {section!r} is a value ({shown(inner)})", expected="a section")
            target = inner
        target[key] = _load(text, source)
    return result


def _load(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=_Loader)
    # For dates, digits and escapes PyYAML raises errors that are no YAMLError.
    except Exception as error:
        raise UsageError(f"{source} is not valid YAML: {str(error)[:1000]}") from error
