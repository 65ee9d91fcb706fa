"""What the command line does with an error: its lines on standard error, and its exit code."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from lengthwise.errors import Interrupted, LengthwiseError
from lengthwise.processes import is_main_process

INTERRUPTED = 130
TERMINATED = 143


class Terminated(KeyboardInterrupt):
    """SIGTERM, which everything that keeps partial results at Ctrl-C treats alike."""


class _Sigterm:
    """Whether this process was told to end."""

    came = False


def treat_sigterm_as_interrupt() -> None:
    """Let SIGTERM raise `Terminated`, once, unless the parent has it ignored or a program around us handles it."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return
    owner = os.getpid()

    def handle(number: int, frame: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if os.getpid() != owner else signal.SIG_IGN)
        if os.getpid() != owner:
            # A forked worker ends at once.
            os.kill(os.getpid(), signal.SIGTERM)
            return
        _Sigterm.came = True
        raise Terminated

    signal.signal(signal.SIGTERM, handle)


@contextmanager
def reported(context: typer.Context) -> Iterator[None]:
    """Turn errors inside the block into a message and an exit code.

    Exit codes: 1 failed, 2 wrong usage or configuration, 3 something is missing, 4 a threshold was crossed,
    130 interrupted, 143 terminated. A bug keeps its traceback and exits with 1; `-v` shows the traceback of every
    error. A warning is shown as a sentence, without the line of code that it comes from.
    """
    formatted = warnings.formatwarning
    warnings.formatwarning = lambda message, *_, **__: f"lengthwise: warning: {message}\n"
    try:
        yield
    except Interrupted as error:
        if _Sigterm.came:
            _stop(error, TERMINATED, context, message=f"terminated: {error}")
        _stop(error, error.exit_code, context)
    except LengthwiseError as error:
        _stop(error, error.exit_code, context)
    except KeyboardInterrupt as error:
        if _Sigterm.came:
            _stop(error, TERMINATED, context, message="terminated")
        _stop(error, INTERRUPTED, context, message="interrupted")
    except Exception as error:
        explained = out_of_memory(error)
        if explained is None:
            raise
        _stop(explained, explained.exit_code, context)
    finally:
        warnings.formatwarning = formatted


def out_of_memory(error: BaseException) -> LengthwiseError | None:
    """The error to show for memory that ran out on the machine or the accelerator; None for all others."""
    # By name: torch may not be loaded, and is not worth loading for this.
    text = str(error)
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in text)
    ):
        return LengthwiseError(
            f"out of memory: {text.splitlines()[0] if text else type(error).__name__}",
            fix="lower --batch-size or the greatest --length, take a smaller --dtype (bfloat16), or for "
            "training batch.micro in the recipe; --dry-run estimates the need",
        )
    return None


def _stop(error: BaseException, code: int, context: typer.Context, *, message: str | None = None) -> NoReturn:
    if context.meta.get("verbose"):
        traceback.print_exception(error)
    # Of several processes that are stopped together the first alone speaks; an error may be that of any.
    if is_main_process() or code not in (INTERRUPTED, TERMINATED):
        print(f"lengthwise: {message or error}", file=sys.stderr)
    raise typer.Exit(code) from error
