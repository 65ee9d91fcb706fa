"""What the command line does with an error: its lines on standard error, and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable

from cyclopts import CycloptsError

from lengthwise.errors import Interrupted, LengthwiseError, UsageError
from lengthwise.processes import is_main_process

INTERRUPTED = 130
TERMINATED = 143
_sigterm = threading.Event()


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


def exit_code(action: Callable[[], object], *, verbose: bool) -> int:
    """The exit code of an action: 0, or that of its error, whose message goes to standard error.

    1 failed, 2 wrong usage or configuration, 3 something is missing, 4 a threshold was crossed, 130 interrupted, 143
    terminated. A bug keeps its traceback, which gives 1; with `verbose` every error shows its traceback. A warning is
    shown as a sentence, without the line of code that it comes from.
    """
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"lengthwise: warning: {message}\n"
    try:
        action()
        return 0
    except (Exception, KeyboardInterrupt) as error:
        code, message = _explained(error)
        if verbose:
            traceback.print_exception(error)
        # Of several processes that are stopped together the first alone speaks; an error may be that of any.
        if is_main_process() or code not in (INTERRUPTED, TERMINATED):
            print(f"lengthwise: {message}", file=sys.stderr)
        return code
    finally:
        warnings.formatwarning = formatted


def _explained(error: BaseException) -> tuple[int, str]:
    """Exit code and message of an error; a bug is raised again."""
    match error:
        case KeyboardInterrupt() | Interrupted() if _sigterm.is_set():
            return TERMINATED, f"terminated: {error}".removesuffix(": ")
        case KeyboardInterrupt():
            return INTERRUPTED, "interrupted"
        case CycloptsError():
            return UsageError.exit_code, str(error)
        case LengthwiseError():
            return error.exit_code, str(error)
    # By name: torch may not be loaded, and is not worth loading for this.
    text, name = str(error), type(error).__name__
    if name not in ("MemoryError", "OutOfMemoryError") and "DefaultCPUAllocator" not in text:
        raise error
    shortage = LengthwiseError(
        f"out of memory: {text.splitlines()[0] if text else name}",
        fix="lower --batch-size or the greatest --length, take a smaller --dtype (bfloat16), or for training "
        "batch.micro in the recipe; --dry-run estimates the need",
    )
    return shortage.exit_code, str(shortage)
