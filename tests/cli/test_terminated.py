"""SIGTERM is treated like Ctrl-C: partial results are kept and printed, and the exit code is 143."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.results import read_results


def terminate(arguments: list[Any], *, once: Path, lines: int) -> subprocess.CompletedProcess[str]:
    """Run the command and send SIGTERM when the file `once` has that many lines."""
    with subprocess.Popen(
        [sys.executable, "-m", "lengthwise", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not (once.exists() and once.read_bytes().count(b"\n") >= lines):
            time.sleep(0.005)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_ppl(lengthwise: Callable[..., Any], model: str, text: list[str], tmp_path: Path):
    run = tmp_path / "run"
    command = ["ppl", model, *text, "--length", 16, "--limit", 100, "--batch-size", 1]
    stopped = terminate([*command, "--out", run], once=run / "samples.jsonl", lines=5)
    assert stopped.returncode == 143, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "lengthwise: terminated" in stopped.stderr
    assert stopped.stdout.strip(), "what was finished is shown"
    assert read_results(run / "results.json").partial
    resumed = lengthwise(*command, "--out", run, "--resume", "--json")
    assert resumed.code == 0
    assert resumed.json["rows"] == lengthwise(*command, "--json").json["rows"]


def test_training(start: Callable[..., Any], recipe: Path, tmp_path: Path):
    run = tmp_path / "run"
    command = ["train", recipe, "--set", "steps=400", "--out", run]
    stopped = start(*command).wait(signal_at=(signal.SIGTERM, run / "metrics.jsonl", 5))
    assert stopped.returncode == 143, stopped.err
    assert "Traceback" not in stopped.err
    assert "lengthwise: terminated" in stopped.err
    assert read_results(run / "results.json").partial
    assert list((run / "checkpoints").glob("checkpoint-*/complete.json"))


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
