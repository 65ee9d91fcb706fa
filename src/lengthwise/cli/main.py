"""`run`, the entry point: the table of verbs, and the exit code of an error."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from keyword import iskeyword
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter

import lengthwise
from lengthwise.cli import verbs
from lengthwise.cli.options import one_by_one, with_fields
from lengthwise.cli.output import in_plain_signs
from lengthwise.errors import (
    TERMINATED,
    Interrupted,
    LengthwiseError,
    UsageError,
    is_out_of_memory,
    reason,
)
from lengthwise.machine import is_main_process
from lengthwise.measure.table import MEASUREMENTS

_HOMES = {"compare": "compare", "difference": "difference", "card": "card"}
"""Of functions that have a module of their own in `lengthwise.cli`."""
VERBS = (
    *(name for name in MEASUREMENTS if name not in (*_HOMES, "predictions")),
    "extend", "train", "merge", "compare", "difference", "import", "report", "card", "reproduce", "ls", "cp",
    "doctor",
)  # fmt: skip
"""The measurements, and functions of the same names. `compare` makes two of the measurements."""
_SUMMARIES = {
    "difference": "Which differences between runs are more than noise?",
    "card": "Make a picture to share of how much context a model uses, or of what NEW changes beside BASE.",
    "reproduce": "Run a study and write its page.",
}
"""Of verbs that the list does not load: for their modules, and `reproduce` because studies may be missing."""
EXAMPLES = (
    "lengthwise measure smollm2-135m --out runs/before",
    "lengthwise train smollm2-lora --out runs/lora",
    "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
)
_sigterm = threading.Event()


def run(words: Sequence[str] | None = None) -> int:
    """The `lengthwise` command: its exit code. The message of an error goes to standard error.

    `EXIT_CODES` says what each means. A bug keeps its traceback, which gives 1; with --verbose every error shows its
    own.
    """
    words = one_by_one(sys.argv[1:] if words is None else words)
    # At its import bitsandbytes warns about a kernel for 4-bit weights, also where there are none.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    treat_sigterm_as_interrupt()
    in_plain_signs()
    formatted = warnings.formatwarning
    # A sentence, without the line of code that it comes from.
    warnings.formatwarning = lambda message, *_, **__: f"lengthwise: warning: {message}\n"
    try:
        code = command_line(words)(words, exit_on_error=False, print_error=False) or 0
        # Not at the exit of the interpreter, which shows a traceback.
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        code, message = _explained(error)
        if not {"-v", "--verbose"}.isdisjoint(words):
            traceback.print_exception(error)
        # Where several processes are stopped together, only the first says so. Any process may report an error.
        if code not in (Interrupted.exit_code, TERMINATED) or is_main_process():
            print(f"lengthwise: {message}", file=sys.stderr)
        return code
    finally:
        warnings.formatwarning = formatted


def treat_sigterm_as_interrupt() -> None:
    """Let SIGTERM raise KeyboardInterrupt, once, unless the parent ignores it or a program around us handles it."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    owner = os.getpid()

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if os.getpid() != owner else signal.SIG_IGN)
        if os.getpid() != owner:
            # A forked worker ends at once.
            os.kill(os.getpid(), signal.SIGTERM)
            return
        _sigterm.set()
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, handle)


def _explained(error: BaseException) -> tuple[int, str]:
    """Exit code and message of an error; a bug is raised again."""
    match error:
        case KeyboardInterrupt() | Interrupted() if _sigterm.is_set():
            return TERMINATED, f"terminated: {error}".removesuffix(": ")
        case KeyboardInterrupt():
            return Interrupted.exit_code, "interrupted"
        case OSError() if (failed := _closed_output()) is not None:
            return LengthwiseError.exit_code, f"cannot write standard output: {failed.strerror}"
        case CycloptsError():
            return UsageError.exit_code, str(error)
        case LengthwiseError():
            return error.exit_code, str(error)
    if not is_out_of_memory(error):
        raise error
    return LengthwiseError.exit_code, (
        f"out of memory: {reason(error)}\n"
        "fix: lower --batch-size or the greatest --lengths, take a smaller --dtype (bfloat16), or for training "
        "batch.micro in the recipe; --dry-run estimates the need"
    )


def _closed_output() -> OSError | None:
    """Why standard output takes nothing more, if so: a full disk, or a pipe whose reader has ended (`| head`)."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # What is left goes nowhere; otherwise the interpreter fails on it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


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
            _complete(verb, name)
        app.command(verb)
    return app


def summary(name: str) -> str:
    """What a verb does, in one line, without importing a measurement."""
    if name in MEASUREMENTS:
        return MEASUREMENTS[name].summary
    return _SUMMARIES.get(name) or _prose(_function(name)).partition("\n")[0]


def _complete(verb: App, name: str) -> None:
    """Give a verb its options, its whole help and its examples."""
    if name in MEASUREMENTS and name not in _HOMES:
        kind = MEASUREMENTS[name].measurement
        function, examples = verbs.measuring(kind), kind.about.examples
    else:
        function = with_fields(_function(name))
        examples = (inspect.getdoc(function) or "").partition("Examples:\n")[2].splitlines()
    verb.help, verb.help_epilogue = _prose(function), _examples(examples)
    verb.default(function)


def _function(name: str) -> Any:
    if name == "reproduce":
        from lengthwise.catalogue import studies_module

        owner = studies_module("study_table")
    else:
        owner = importlib.import_module(f"lengthwise.cli.{_HOMES.get(name, 'verbs')}")
    return getattr(owner, f"{name}_" if iskeyword(name) else name)


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
