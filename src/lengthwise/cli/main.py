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
from lengthwise.cli.exit_codes import exit_code, treat_sigterm_as_interrupt
from lengthwise.cli.options import with_fields
from lengthwise.files import is_url
from lengthwise.measure.table import MEASUREMENTS

# Verbs with a function of their own, and its module. The others are measurements (`served` is `compare` with a URL).
FUNCTIONS = {
    "extend": "model_verbs",
    "train": "train",
    "merge": "model_verbs",
    "compare": "run_verbs",
    "report": "run_verbs",
    "reproduce": "reproduce",
    "ls": "list_verbs",
    "cp": "list_verbs",
    "doctor": "list_verbs",
}
VERBS = (*(name for name in MEASUREMENTS if name != "served"), *FUNCTIONS)
EXAMPLES = (
    "lengthwise measure smollm2-135m --out runs/before",
    "lengthwise train smollm2-lora --out runs/lora",
    "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
)


def verb(name: str) -> App:
    """The verb as an app, with its options, its help and its examples."""
    if name in MEASUREMENTS:
        from lengthwise.cli.measuring import command

        kind = MEASUREMENTS[name].measurement
        function, examples = command(kind), kind.examples
    else:
        function = with_fields(_function(name))
        examples = inspect.cleandoc(function.__doc__).partition("Examples:\n")[2].splitlines()
    app = App(
        "compare" if name == "served" else name,
        help=_prose(function.__doc__),
        help_epilogue=_examples(examples),
    )
    app.default(function)
    return app


def summary(name: str) -> str:
    """What the verb does, in one line, without importing what measures."""
    if name in MEASUREMENTS:
        return MEASUREMENTS[name].summary
    return _prose(_function(name).__doc__).partition("\n")[0]


def run(words: Sequence[str] | None = None) -> int:
    """The `lengthwise` command: its exit code."""
    words = sys.argv[1:] if words is None else list(words)
    # It remarks on a kernel for 4-bit weights whenever it is imported, also where there are none.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    treat_sigterm_as_interrupt()
    verbose = bool({"-v", "--verbose"} & set(words))
    return exit_code(
        lambda: command_line(words)(words, exit_on_error=False, print_error=False), verbose=verbose
    )


def command_line(words: Sequence[str]) -> App:
    """All verbs by their names, and the one that is called with its options."""
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
    called = words[0] if words else None
    for place, name in enumerate(VERBS):
        # `compare` with an endpoint measures; with run folders it reads them. Each has its own options.
        served = name == "compare" and any(map(is_url, words))
        one = verb("served" if served else name) if name == called else App(name, help=summary(name))
        one.sort_key = place
        app.command(one)
    return app


def _function(name: str) -> Any:
    return getattr(importlib.import_module(f"lengthwise.cli.{FUNCTIONS[name]}"), name)


def _prose(doc: str) -> str:
    """A docstring's paragraphs, each on one line, without its sections."""
    text = inspect.cleandoc(doc).partition("\n\nArgs:")[0].partition("\n\nExamples:")[0]
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _examples(lines: Sequence[str]) -> str:
    return "\n".join(["Examples:", *(f"  {line.strip()}" for line in lines)])


def _default(value: Any) -> str | None:
    """A default as it would be written; None shows none."""
    values = value if isinstance(value, tuple) else (value,)
    return ", ".join(str(one) for one in values if one is not None and one is not False) or None
