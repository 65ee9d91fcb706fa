"""`run`, the entry point: the table of verbs, and the exit code of an error."""

from __future__ import annotations

import importlib
import inspect
import logging
import os
import re
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Sequence, Set
from contextlib import suppress
from functools import partial
from keyword import iskeyword
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, CycloptsError, Group, Parameter

import lengthwise
from lengthwise.cli.options import Junit, Output, one_by_one, with_fields
from lengthwise.cli.output import in_plain_signs, print_plan, show
from lengthwise.errors import TERMINATED, Interrupted, LengthwiseError, UsageError, is_out_of_memory, reason
from lengthwise.machine import is_main_process
from lengthwise.measure.table import MEASUREMENTS
from lengthwise.settings import Subject

if TYPE_CHECKING:
    from lengthwise.measure.measurement import Measurement

_FAIL_ABOVE = Parameter(help="Exit with 4 if at any length the value (not its interval) is above this.")
_HOMES = {"compare": "compare", "difference": "compare", "card": "card"}
"""The modules of `lengthwise.cli` that have the functions of verbs; those of the others are in `verbs`."""
_SUMMARIES = {
    "extend": "Extend the context of a model with rotary positions.",
    "train": "Train a model with the alignment objective.",
    "merge": "Merge a run's adapter into its base model and save that.",
    "compare": MEASUREMENTS["compare"].summary,
    "difference": "Which differences between runs are more than noise?",
    "import": "Make a run folder of what lm-eval wrote, for report and difference.",
    "report": "Make one self-contained HTML page of one or several runs.",
    "card": "Make a picture to share of how much context a model uses, or of what NEW changes beside BASE.",
    "reproduce": "Run a study and write its page.",
    "ls": "List models, corpora, recipes, methods, tasks and studies.",
    "cp": "Copy a recipe of lengthwise to a file that you can change.",
    "doctor": "Check what positions a model really uses, or show what is on this machine.",
}
"""Of functions of the same names: the first lines of their texts, for the list of verbs, which loads none of them."""
VERBS = (*(name for name in MEASUREMENTS if name not in (*_SUMMARIES, "predictions")), *_SUMMARIES)
"""The measurements, and functions of the same names. `compare` makes two of the measurements."""
EXAMPLES = (
    "lengthwise measure smollm2-135m --out runs/before",
    "lengthwise train smollm2-lora --out runs/lora",
    "lengthwise measure smollm2-135m --adapter runs/lora/model --out runs/after",
    "lengthwise report runs/before runs/after runs/lora --out compare.html",
)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
_COMMAS = re.compile(r'unable to convert "([\d.]+(?:,[\d.]+)+)"')
_ELSEWHERE = re.compile(r"`[^`]*`|(lengthwise|torchrun|hf|vLLM:?) [^,;)]*")
"""Whole commands and other programs, whose options are their own."""
_BETWEEN = re.compile(r"; |, (?:or )?| or (?=another |choose |start |--)")
_WRITERS = ("lengthwise.cli.", "lengthwise_studies.study_table", "rich.")
"""Modules that write to standard output; what they write to files has its own errors."""
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
    formatted, last = warnings.formatwarning, logging.lastResort
    # Where a program around us has no handler, warnings are written beside bars.
    logging.lastResort = _BesideBars(logging.WARNING)
    # A sentence, without the line of code that it comes from.
    warnings.formatwarning = lambda message, *_, **__: f"lengthwise: warning: {message}\n"
    try:
        code = command_line(words)(words, exit_on_error=False, print_error=False) or 0
        # Not at the exit of the interpreter, which shows a traceback.
        sys.stdout.flush()
        return code
    except (Exception, KeyboardInterrupt) as error:
        code, message = _explained(error, words[:1])
        if not {"-v", "--verbose"}.isdisjoint(words):
            traceback.print_exception(error)
        # Where several processes are stopped together, only the first says so. Any process may report an error.
        if code not in (Interrupted.exit_code, TERMINATED) or is_main_process():
            with suppress(OSError):
                print(f"lengthwise: {message}", file=sys.stderr)
        return code
    finally:
        warnings.formatwarning, logging.lastResort = formatted, last


class _BesideBars(logging.Handler):
    """Warnings on standard error, above a bar that is drawn there."""

    def emit(self, record: logging.LogRecord) -> None:
        from lengthwise.progress import say

        say(self.format(record))


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


def _explained(error: BaseException, verb: Sequence[str] = ()) -> tuple[int, str]:
    """Exit code and message of an error; a bug is raised again."""
    match error:
        case KeyboardInterrupt() | Interrupted() if _sigterm.is_set():
            return TERMINATED, f"terminated: {error}".removesuffix(": ")
        case KeyboardInterrupt():
            return Interrupted.exit_code, "interrupted"
        case OSError() if _is_of_output(error):
            return LengthwiseError.exit_code, f"cannot write standard output: {error.strerror}"
        case CycloptsError():
            listed = _COMMAS.search(said := str(error))
            apart = f"\nexpected: blanks between them: {listed[1].replace(',', ' ')}" if listed else ""
            return UsageError.exit_code, f"{said}{apart}"
        case LengthwiseError():
            return error.exit_code, str(_fitting(error, *verb))
    if not is_out_of_memory(error):
        raise error
    return LengthwiseError.exit_code, (
        f"out of memory: {reason(error)}\n"
        "fix: lower --batch-size or the greatest --lengths, take a smaller --dtype (bfloat16), or for training "
        "batch.micro in the recipe; --dry-run estimates the need"
    )


def _fitting(error: LengthwiseError, verb: str = "") -> LengthwiseError:
    """The error, telling nothing that the verb has no option for: the library does not know which verb calls it."""
    if verb not in VERBS or not error.fix or not options_in(error.fix):
        return error
    return LengthwiseError(error.problem, expected=error.expected, fix=fitting(error.fix, options_of(verb)))


def options_in(text: str) -> set[str]:
    """The options that a text tells to give to the verb at hand."""
    return {*_OPTION.findall(_ELSEWHERE.sub("", text))}


def fitting(fix: str, own: Set[str]) -> str | None:
    """The parts of `fix` that name no option but the verb's `own`; None if none is left.

    >>> fitting("restore them, or --overwrite, or another --out", {"--out"})
    'restore them or another --out'
    """
    if options_in(fix) <= own:
        return fix
    kept = [part for part in _BETWEEN.split(fix) if options_in(part) <= own]
    last = " or " if " or " in fix else ", "
    return last.join([", ".join(kept[:-1]), kept[-1]] if len(kept) > 1 else kept) or None


def options_of(verb: str) -> frozenset[str]:
    """The options of a verb, by their names."""
    app = command_line([verb])[verb]
    return frozenset(name for each in app.assemble_argument_collection() for name in each.names)


def _is_of_output(error: OSError) -> bool:
    """Whether standard output takes nothing more: a full disk, or a pipe whose reader has ended (`| head`)."""
    # A write that fails may drop what it should have written, so that a second one would not fail.
    *_, (writer, _) = traceback.walk_tb(error.__traceback__)
    if error.filename is not None or not writer.f_globals["__name__"].startswith(_WRITERS):
        return False
    # What is left goes nowhere; otherwise the interpreter fails on it once more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True


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
    """What a verb does, in one line, without importing it."""
    return _SUMMARIES.get(name) or MEASUREMENTS[name].summary


def _complete(verb: App, name: str) -> None:
    """Give a verb its options, its whole help and its examples."""
    if name not in _SUMMARIES:
        kind = MEASUREMENTS[name].measurement
        function, examples = _measuring(kind), kind.about.examples
    else:
        function = with_fields(_function(name))
        examples = (inspect.getdoc(function) or "").partition("Examples:\n")[2].splitlines()
    verb.help, verb.help_epilogue = _prose(function), _examples(examples)
    verb.default(function)


def _measuring(kind: type[Measurement]) -> Callable[..., int | None]:
    """The verb of a measurement, with an option for each of its fields."""

    def verb(
        subject: Subject,
        measurement: Any,
        *,
        fail_above: Annotated[float | None, _FAIL_ABOVE] = None,
        junit: Junit = None,
        output: Output,
    ) -> int | None:
        limits = {}
        if fail_above is not None or junit is not None:
            from lengthwise.cli import gates

            limits = gates.limits(fail_above, metric=kind.about.fail_above or "", junit=junit)
        from lengthwise.measure.runner import plan_run, run

        if output.dry_run:
            print_plan(plan_run(measurement, subject), as_json=output.as_json)
            return None
        return show(partial(run, measurement, subject), output, limits, junit)

    verb.__doc__ = kind.__doc__
    verb.__annotations__["measurement"] = kind
    return with_fields(verb, hidden=() if kind.about.fail_above else ("fail_above", "junit"))


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
