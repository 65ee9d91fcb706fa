"""Ctrl-C and SIGTERM: what was finished is kept, and --resume ends with the same result.

A program's own handler of SIGTERM stays, and a forked worker ends at once.
"""

import errno
import io
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.__main__ import main
from lengthwise.cli.main import run
from lengthwise.results import read_results


def test_measuring(lengthwise, start, model, text, tmp_path):
    command = ["measure", model, *text, "--lengths", 16, "--lengths", 64, "--windows", 40]
    run = tmp_path / "run"
    stopped = start(*command, "--out", run).wait(signal_at=(signal.SIGINT, run / "samples.jsonl", 45))
    assert stopped.returncode == 130, stopped.err
    assert "Traceback" not in stopped.err
    assert "lengthwise: the measurement was interrupted after " in stopped.err
    assert "fix: run it again with --resume to continue" in stopped.err
    assert "(partial)" in stopped.out, "what was finished is shown"
    partial = read_results(run / "results.json")
    assert partial.partial
    assert partial.select(metric="sce", length=16, position=None, context_other=None)
    finished = (run / "samples.jsonl").read_bytes()
    assert 45 <= finished.count(b"\n") < 80

    resumed = lengthwise(*command, "--out", run, "--resume", "--json")
    assert resumed.code == 0
    assert (run / "samples.jsonl").read_bytes().startswith(finished), "nothing is done twice"
    assert resumed.json["partial"] is False
    assert resumed.json["rows"] == lengthwise(*command, "--json").json["rows"]


def test_training(lengthwise, start, recipe, tmp_path):
    command = ["train", recipe, "--set", "steps=30", "--set", "save_every=5"]
    run = tmp_path / "run"
    stopped = start(*command, "--out", run).wait(signal_at=(signal.SIGTERM, run / "metrics.jsonl", 7))
    assert stopped.returncode == 143, stopped.err
    assert "Traceback" not in stopped.err
    assert "lengthwise: terminated: training was interrupted after step " in stopped.err
    assert read_results(run / "results.json").partial
    assert not (run / "model").exists()
    assert list((run / "checkpoints").glob("checkpoint-*"))

    resumed = lengthwise(*command, "--out", run, "--resume", "--json")
    assert resumed.code == 0
    whole = lengthwise(*command, "--out", tmp_path / "whole", "--json").json["rows"]
    assert [row["value"] for row in resumed.json["rows"]] == pytest.approx([row["value"] for row in whole])


def test_before_the_first_sample(on_text: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from lengthwise.subjects import loaded_model

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(loaded_model, "load", interrupted)
    stopped = on_text("measure", "--lengths", 16, "--out", "run")
    assert stopped.code == 130
    assert stopped.out == ""
    assert stopped.err == "lengthwise: interrupted\n"
    assert not Path("run/config.yaml").exists()


def test_a_program_that_handles_sigterm_keeps_its_handler(lengthwise: Callable[..., Any]):
    def own(number: int, frame: object) -> None: ...

    before = signal.signal(signal.SIGTERM, own)
    try:
        assert lengthwise("ls").code == 0
        assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, before)


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


class _Stopped:
    """What finds modules, and gets Ctrl-C."""

    @staticmethod
    def find_spec(*_: object) -> None:
        raise KeyboardInterrupt


def test_while_the_command_is_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.delitem(sys.modules, "lengthwise.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [_Stopped])
    assert main() == 130
    assert capsys.readouterr().err == "lengthwise: interrupted\n"


# A text that is longer than the buffer is dropped by the write that fails. To rich a closed pipe is the end.
@pytest.mark.parametrize(
    ("kind", "says", "words"),
    [
        ("full", "No space left", "ls models --json"),
        ("full", "No space left", "ls --json"),
        ("full", "No space left", "ls"),
        ("full", "No space left", "ppl --help"),
        ("closed", "Broken pipe", "ls models --json"),
        ("closed", "Broken pipe", "ls --json"),
    ],
)
def test_standard_output_that_takes_nothing_more(kind, says, words, monkeypatch, capsys):
    target: Any = "/dev/full"
    if kind == "closed":
        reader, target = os.pipe()
        os.close(reader)
    with open(target, "w", encoding="utf-8") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        assert run(words.split()) == 1
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert says in said


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_without_standard_output_or_error(name, monkeypatch, capsys):
    """As Python has it where the shell closed it: the command does its work, and no message strays."""
    monkeypatch.setattr(sys, name, None)
    assert run(["ls", "models"]) == 0
    assert run(["ls", "nothing"]) == 2
    out, err = capsys.readouterr()
    assert ("nothing" in err, "nothing" in out) == (name == "stdout", False)


class _Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("words", "code"),
    [((), 0), (("--fail-above", 1), 4), (("--fail-above", -1), 2)],
    ids=["a bar", "a gate", "an error"],
)
def test_standard_error_that_takes_nothing_ends_no_run(words, code, model, text, tmp_path, monkeypatch):
    """`|& head`, or a log on a full disk: a bar ended the run, without a word and with another exit code."""
    out = tmp_path / "run"
    command = ["ppl", model, *text, "--lengths", "16", "--windows", "2", "--out", str(out), *map(str, words)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", _Full())
        assert run(command) == code
    assert (out / "results.json").exists() == (code != 2)
