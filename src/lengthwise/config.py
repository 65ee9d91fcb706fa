"""Settings: YAML files checked against frozen dataclasses, with every mistake named at once."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from lengthwise.errors import UsageError, nearest, shown

T = TypeVar("T")

MOST_VALUES = 100_000
"""Values in one YAML text, aliases expanded. Settings have some dozens."""


_MOST_NESTED = 64


class _Loader(yaml.SafeLoader):
    """YAML without three of its traps: duplicate keys and tags are errors, and 1e-5 is a number."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _check_size(node)
        return node

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()
        tag = getattr(event, "tag", None)
        if tag is not None and not isinstance(event, yaml.AliasEvent):
            raise UsageError(
                f"tag {tag!r} (line {event.start_mark.line + 1})",
                expected="plain values: numbers, texts, lists and mappings",
                fix="leave the tag out",
            )
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, TokenClass: Any) -> None:
        # PyYAML's scanner takes seconds for a thousand open brackets.
        if self.flow_level >= _MOST_NESTED:
            raise UsageError(f"brackets nested more than {_MOST_NESTED} deep", expected="settings")
        super().fetch_flow_collection_start(TokenClass)


def _check_size(root: yaml.Node) -> None:
    """Refuse aliases that would expand to more than `MOST_VALUES` values, before they are expanded."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node) -> int:
        if id(node) not in sizes:
            # An alias inside of what it names would never end.
            sizes[id(node)] = MOST_VALUES
            children: list[yaml.Node] = []
            if isinstance(node, yaml.SequenceNode):
                children = node.value
            elif isinstance(node, yaml.MappingNode):
                children = [child for pair in node.value for child in pair]
            sizes[id(node)] = 1 + sum(size(child) for child in children)
        return sizes[id(node)]

    if size(root) > MOST_VALUES:
        raise UsageError(
            f"more than {MOST_VALUES} values, with its aliases expanded",
            expected="settings",
            fix="write the values that are meant, without aliases of aliases",
        )


def _unique_mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    seen: set[Any] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(
                "while reading a mapping", node.start_mark, f"{key!r} cannot be a key", key_node.start_mark
            )
        if key in seen:
            raise UsageError(
                f"duplicate key {key!r} (line {key_node.start_mark.line + 1})", fix="keep one of them"
            )
        seen.add(key)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _unique_mapping)


class _Dumper(yaml.SafeDumper):
    """Writes what `_Loader` reads back equal: the text "1e-5" gets quotes."""


for _side in (_Loader, _Dumper):
    _side.add_implicit_resolver(
        "tag:yaml.org,2002:float",
        re.compile(r"^[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
        list("-+0123456789"),
    )


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML mapping.

    Raises:
        UsageError: missing file, not YAML, duplicate keys, or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"cannot read {path}: {reason}", expected="a YAML file", fix="check the path"
        ) from error
    return parse_yaml(text, source=str(path))


def parse_yaml(text: str, *, source: str) -> dict[str, Any]:
    """`read_yaml` of a text; `source` names it in errors."""
    value = _load(text, source)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(
            f"{source} holds a {type(value).__name__}", expected="a mapping of settings (key: value)"
        )
    return value


def to_yaml(value: Mapping[str, Any]) -> str:
    """A mapping as YAML, keys in the order given."""
    return yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True)


def override(settings: Mapping[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """Apply `section.key=value` assignments (values are YAML) to a copy of `settings`.

    Raises:
        UsageError: an assignment without `=`, or a path through something that is not a section.
    """
    result = _copy(settings)
    for assignment in assignments:
        path, sign, text = assignment.partition("=")
        if not sign or not path:
            raise UsageError(
                f"--set {shown(assignment)} has no value",
                expected="section.key=value",
                fix="--set objective.alpha=0.1",
            )
        *sections, key = path.replace("-", "_").split(".")
        target = result
        for section in sections:
            inner = target.setdefault(section, {})
            if not isinstance(inner, dict):
                raise UsageError(
                    f"--set {shown(assignment)}: {section!r} is a value ({shown(inner)})",
                    expected="a section",
                )
            target = inner
        target[key] = _load(text, f"--set {shown(assignment)}")
    return result


def _load(text: str, source: str) -> Any:
    """The one place that reads YAML.

    Raises:
        UsageError: whatever PyYAML raises. For dates, integers, escapes and nesting it raises errors that are
            no `YAMLError`.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except UsageError as error:
        raise UsageError(f"{source}: {error.problem}", expected=error.expected, fix=error.fix) from error
    except RecursionError as error:
        raise UsageError(f"{source} is nested too deeply", expected="settings") from error
    except (yaml.YAMLError, ValueError, OverflowError, TypeError, AttributeError, IndexError) as error:
        problem = str(error)
        cut = problem if len(problem) <= 1000 else problem[:1000] + " ..."
        raise UsageError(f"{source} is not valid YAML: {cut}") from error


def validate(kind: type[T], settings: Mapping[str, Any], *, source: str) -> T:
    """Build the frozen dataclass `kind` from plain settings.

    Unknown keys, missing keys and wrong values are all reported at once, each with its path; an unknown
    key comes with the nearest valid one.

    Raises:
        UsageError: anything does not fit.
    """
    lines = [f"{path} = {shown(value)}: expected a finite number" for path, value in _not_finite(settings)]
    try:
        found = _adapter(kind).validate_python(dict(settings))
    except ValidationError as error:
        lines += [_describe(kind, problem) for problem in error.errors()]
    else:
        lines += [f"{path} = {shown(value)}: expected a number" for path, value in _bools(settings, found)]
        if not lines:
            return found
    count = "one mistake" if len(lines) == 1 else f"{len(lines)} mistakes"
    raise UsageError(f"{source} has {count}:\n  " + "\n  ".join(lines))


@functools.cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    """Pydantic's checks of a dataclass. They take ten times as long to make as to use."""
    _forbid_unknown_keys(kind)
    return TypeAdapter(kind)


def _not_finite(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every NaN and infinity in plain settings, options of unknown type included, with its path."""
    if isinstance(value, float) and not math.isfinite(value):
        yield path, value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _not_finite(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _not_finite(inner, path)


def _bools(settings: Any, found: Any, path: str = "") -> Iterator[tuple[str, bool]]:
    """Every yes, no, true and false that pydantic has taken for 1 or 0."""
    if isinstance(settings, bool) and isinstance(found, int | float) and not isinstance(found, bool):
        yield path, settings
    elif isinstance(settings, Mapping) and is_dataclass(found):
        for key, inner in settings.items():
            yield from _bools(inner, getattr(found, key), f"{path}.{key}" if path else str(key))
    elif isinstance(settings, list | tuple) and isinstance(found, list | tuple):
        for inner, validated in zip(settings, found, strict=False):
            yield from _bools(inner, validated, path)


def _describe(kind: Any, problem: Any) -> str:
    path = [str(part) for part in problem["loc"]]
    where = ".".join(path)
    if problem["type"] == "unexpected_keyword_argument":
        return f"unknown key {where!r}; {nearest(path[-1], _names_at(kind, path[:-1]))}"
    if problem["type"] == "missing":
        return f"missing key {where!r}"
    return f"{where} = {shown(problem['input'])}: {problem['msg']}"


def _names_at(kind: Any, path: list[str]) -> list[str]:
    for part in path:
        kind = _dataclass_in(get_type_hints(kind).get(part))
        if kind is None:
            return []
    return [f.name for f in fields(kind)]


def _dataclass_in(hint: Any) -> Any:
    """The dataclass inside an annotation like `Adapter | None`, or None."""
    candidates = [hint, *get_args(hint)]
    return next((c for c in candidates if isinstance(c, type) and is_dataclass(c)), None)


def _forbid_unknown_keys(kind: Any) -> None:
    """Make pydantic refuse unknown keys in `kind` and the dataclasses inside it."""
    if "__pydantic_config__" not in vars(kind):
        with_config(ConfigDict(extra="forbid"))(kind)
    for hint in get_type_hints(kind).values():
        inner = _dataclass_in(hint)
        if inner is not None:
            _forbid_unknown_keys(inner)


def _copy(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in settings.items()}
