"""One trial: the command line in a forked process, and what its end must look like."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Everything a forked process may end with: done, failed, usage, missing, threshold, interrupted, terminated.
EXPLAINED = {0, 1, 2, 3, 4, 130, 143}


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    code: int
    """Exit code; minus the signal if one ended it."""
    output: str
    """Standard output, then standard error."""
    seconds: float
    hung: bool = False

    @property
    def fault(self) -> str | None:
        """What no user may ever see: a traceback, a hang, an exit code without a meaning."""
        if self.hung:
            return f"hangs for {self.seconds:.0f} s"
        if "Traceback (most recent call last)" in self.output:
            return "traceback: " + self.output.strip().splitlines()[-1][:150]
        if "weights_only=False" in self.output:
            return "suggests weights_only=False"
        if self.code not in EXPLAINED:
            return f"exit code {self.code}"
        if self.code in (1, 2, 3) and not self.output.strip():
            return f"exit code {self.code} without a word"
        return None


@dataclass(frozen=True)
class Trial:
    """One line of the campaign's log."""

    what: str
    fault: str | None
    """None: as promised."""


def lengthwise(
    words: Sequence[str],
    *,
    timeout: float = 120,
    kill_after: float | None = None,
    before: Callable[[], None] | None = None,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """Run `lengthwise WORDS` in a fork of this process, which has the heavy imports done already.

    Args:
        words: the arguments.
        timeout: seconds after which it counts as hung, and is killed.
        kill_after: seconds after which it gets SIGKILL, if it is still running.
        before: called in the fork first (limits on resources).
        environment: variables for the fork.
    """
    started = time.monotonic()
    # A pipe, because limits on the size of files hold for a file of the output too.
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        _run(words, sink, before, environment)
    os.close(sink)
    os.set_blocking(source, False)
    output = bytearray()
    deadline = started + min(timeout, kill_after if kill_after is not None else timeout)
    status = None
    while status is None and time.monotonic() < deadline:
        done, found = os.waitpid(child, os.WNOHANG)
        status = found if done else None
        _read_available(source, output)
        if status is None:
            time.sleep(0.005)
    hung = status is None and kill_after is None
    if status is None:
        os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    _read_available(source, output)
    os.close(source)
    text = output.decode(errors="replace")
    return Outcome(os.waitstatus_to_exitcode(status), text, time.monotonic() - started, hung)


def _read_available(source: int, output: bytearray) -> None:
    with contextlib.suppress(BlockingIOError):
        while block := os.read(source, 65536):
            output += block


def _run(
    words: Sequence[str],
    sink: int,
    before: Callable[[], None] | None,
    environment: dict[str, str] | None,
) -> None:
    """In the fork: become the command. Does not return."""
    code = 70
    try:
        os.setsid()
        os.dup2(sink, 1)
        os.dup2(sink, 2)
        os.environ.update(environment or {})
        sys.argv = ["lengthwise", *words]
        if before is not None:
            before()
        from lengthwise.cli.main import run

        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def rows_of(run: Path) -> list[dict] | None:
    """The rows of a run folder's results; None where there are none."""
    try:
        return json.loads((run / "results.json").read_text())["rows"]
    except (OSError, ValueError, KeyError):
        return None
