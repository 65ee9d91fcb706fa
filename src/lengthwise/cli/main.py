"""The table of verbs, and `run`, the entry point."""

from __future__ import annotations

import importlib
import inspect
import logging
import sys
from collections.abc import Sequence
from typing import Any

from cyclopts import App, Group, Parameter

import lengthwise
from lengthwise.cli import verbs
from lengthwise.cli.exit_codes import exit_code, treat_sigterm_as_interrupt
from lengthwise.cli.options import with_fields
from lengthwise.files import is_url
from lengthwise.measure.table import MEASUREMENTS

# `served` is `compare` with an endpoint. What is no measurement is a function of its name.
VERBS = (
    *(name for name in MEASUREMENTS if name != "served"), "extend", "train", "merge", "compare", "report",
    "reproduce", "ls", "cp", "doctor",
)  # fmt: skip
EXAMPLES = (
    "lengthwise measure smollm2-135m --out runs/before",
    "lengthwise train smollm2-lora --out runs/lora",
    "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
)


def run(words: Sequence[str] | None = None) -> int:
    """The `lengthwise` command: its exit code."""
    words = sys.argv[1:] if words is None else list(words)
    # It remarks on a kernel for 4-bit weights whenever it is imported, also where there are none.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    treat_sigterm_as_interrupt()
    return exit_code(
        lambda: command_line(words)(words, exit_on_error=False, print_error=False),
        verbose=not {"-v", "--verbose"}.isdisjoint(words),
    )


def command_line(words: Sequence[str]) -> App:
    """All verbs with their summaries, and the one that is called with its options."""
    app = App(
        "lengthwise",
        help="Do a language model's predictions hold as its context grows? Measure it, train for it.",
        help_epilogue=_examples(EXAMPLES),
        help_format="plaintext",
        version=f"lengthwise {lengthwise.__version__}",
        result_action="return_value",
        suppress_keyboard_interrupt=False,
        group_parameters=Group("Options", sort_key=1),
        default_parameter=Parameter(negative=(), show_default=_default),
    )
    for place, name in enumerate(VERBS):
        verb = App(name, help=summary(name), sort_key=place)
        if name in words[:1]:
            # `compare` with an endpoint measures; with run folders it reads them. Each has its own options.
            served = name == "compare" and any(map(is_url, words))
            _complete(verb, "served" if served else name)
        app.command(verb)
    return app


def summary(name: str) -> str:
    """What a verb does, in one line, without importing a measurement."""
    return MEASUREMENTS[name].summary if name in MEASUREMENTS else _prose(_function(name)).partition("\n")[0]


def _complete(verb: App, name: str) -> None:
    """Give a verb its options, its whole help and its examples."""
    if name in MEASUREMENTS:
        kind = MEASUREMENTS[name].measurement
        function, examples = verbs.measuring(kind), kind.examples
    else:
        function = with_fields(_function(name))
        examples = (inspect.getdoc(function) or "").partition("Examples:\n")[2].splitlines()
    verb.help, verb.help_epilogue = _prose(function), _examples(examples)
    verb.default(function)


def _function(name: str) -> Any:
    home = importlib.import_module("lengthwise.studies.command") if name == "reproduce" else verbs
    return getattr(home, name)


def _prose(function: Any) -> str:
    """The paragraphs of a docstring, each on one line, without its sections."""
    text = (inspect.getdoc(function) or "").partition("\n\nArgs:")[0].partition("\n\nExamples:")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _examples(lines: Sequence[str]) -> str:
    return "\n".join(["Examples:", *(f"  {line.strip()}" for line in lines)])


def _default(value: Any) -> str | None:
    """A default as it would be written; None shows none."""
    values = value if isinstance(value, tuple) else (value,)
    return ", ".join(str(one) for one in values if one is not None and one is not False) or None
