"""SIGTERM where it ends no run: a program's own handler stays, and a forked worker ends at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest


def test_a_program_that_handles_sigterm_keeps_its_handler(lengthwise: Callable[..., Any]):
    def own(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        assert lengthwise("ls").code == 0
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_ends_at_once():
    from lengthwise.cli.main import treat_sigterm_as_interrupt

    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        treat_sigterm_as_interrupt()
        up, is_up = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(is_up, b"1")
            time.sleep(60)
            os._exit(0)
        # Python forgets a signal that reaches the child before it has set itself up.
        assert os.read(up, 1) == b"1"
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    finally:
        signal.signal(signal.SIGTERM, before)
