"""Every verb of the command line, from the declarations that its `--help` is made from."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from lengthwise.cli import main
from lengthwise.cli.verbs import command, epilog
from lengthwise.measure.table import MEASUREMENTS
from tools.reference.words import code, plain, table

_INTRODUCTION = """\
# Command line

One section for each verb, with what `lengthwise VERB --help` shows. Results go to standard output, progress and
errors to standard error. Options can be written with `-` or `_`. Exit codes and environment variables have
[their own page](environment.md).
"""
_WORDS = {str: "text", int: "integer", float: "number", Path: "path"}


def page() -> str:
    """The page, in Markdown."""
    summaries = ((f"[`{name}`](#lengthwise-{name})", plain(main._summary(name))) for name in main.VERBS)
    parts = [_INTRODUCTION, table(["verb", "what it does"], summaries)]
    for name in main.VERBS:
        if name in MEASUREMENTS:
            entry = MEASUREMENTS[name]
            parts += _section(f"lengthwise {name}", command(entry), epilog(entry))
        else:
            module = main._module(name)
            parts += _section(f"lengthwise {name}", getattr(module, name.replace("-", "_")), module.EXAMPLES)
        if name == "compare":
            entry = MEASUREMENTS["served"]
            parts += _section("lengthwise compare CHECKPOINT URL", command(entry), epilog(entry))
    return "\n".join(parts)


def _section(heading: str, verb: Callable[..., None], examples: str) -> Iterator[str]:
    arguments, options = [], []
    for name, annotation, default in _parameters(verb):
        kind, mark = get_args(annotation)[:2]
        if isinstance(mark, ArgumentInfo):
            arguments.append((mark.metavar or name.upper(), plain(mark.help or "")))
        else:
            options.append(_option(name, kind, mark, default))
    name = " ".join(heading.split()[:2])
    yield f"## `{heading}`\n"
    yield "```text\n" + " ".join([name, *(metavar for metavar, _ in arguments), "[OPTIONS]"]) + "\n```\n"
    yield "\n\n".join(plain(part) for part in inspect.cleandoc(verb.__doc__ or "").split("\n\n")) + "\n"
    if arguments:
        rows = (
            (code(metavar.strip("[]") if "|" not in metavar else "LIST"), what) for metavar, what in arguments
        )
        yield table(["argument", "meaning"], rows)
    yield table(["option", "meaning", "type", "default"], options)
    lines = examples.partition("Examples:\n")[2].splitlines()
    yield "```bash\n" + "\n".join(line.strip() for line in lines) + "\n```\n"


def _parameters(verb: Callable[..., None]) -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        if hints[name] is not typer.Context:
            yield name, hints[name], parameter.default


def _option(name: str, kind: Any, mark: OptionInfo, default: Any) -> tuple[str, str, str, str]:
    # Inside of Annotated the first positional argument is no default: it is a flag.
    given = [one for one in (mark.default, *(mark.param_decls or ())) if isinstance(one, str)]
    flags = given or [f"--{name.replace('_', '-')}"]
    words, repeatable = _type(kind)
    if mark.metavar is not None and words != "flag":
        words = code(mark.metavar)
    return (
        ", ".join(map(code, flags)),
        plain(mark.help or ""),
        words + (", repeatable" if repeatable else ""),
        _default(default),
    )


def _type(kind: Any) -> tuple[str, bool]:
    """The type in words, and whether the option can be repeated."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _type(inner[0])
    if origin in (Union, types.UnionType):
        return _type(next(part for part in inner if part is not type(None)))
    if origin is list:
        return _type(inner[0])[0], True
    if origin is tuple:
        return " ".join(_type(part)[0] for part in inner), False
    if origin is Literal:
        return ", ".join(code(str(one)) for one in inner), False
    return ("flag" if kind is bool else _WORDS[kind]), False


def _default(default: Any) -> str:
    if default is inspect.Parameter.empty:
        return "required"
    if default is None or default is False or default == []:
        return ""
    return ", ".join(code(str(one)) for one in (default if isinstance(default, list) else [default]))
