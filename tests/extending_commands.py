"""Run the guides' commands in one process: `python extending_commands.py MODEL TEXT COMMAND...`.

The last line of the output is JSON: for each command its exit code, the tests that it ran, and its output.
"""

import contextlib
import io
import json
import shlex
import sys
from typing import Any

import pytest

from lengthwise.cli.main import run
from lengthwise.testing import save_tiny_model, tiny_text


class Counted:
    """Counts the tests that were run to their end, by outcome."""

    def __init__(self) -> None:
        self.outcomes: dict[str, int] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.skipped:
            self.outcomes[report.outcome] = self.outcomes.get(report.outcome, 0) + 1


def run_tests(words: list[str]) -> dict[str, Any]:
    counted = Counted()
    code = pytest.main(["-q", "-p", "no:cacheprovider", *words], plugins=[counted])
    return {"code": int(code), "tests": counted.outcomes}


def run_verb(words: list[str], model: str, text: str) -> dict[str, Any]:
    """A real model becomes a tiny one, and a verb that measures gets a tiny text."""
    measures = "smollm2-135m" in words and "extend" not in words
    words = [model if word == "smollm2-135m" else word for word in words]
    words += ["--text", text, "--split", "all"] if measures else []
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        code = run(words)
    return {"code": code, "out": output.getvalue()}


if __name__ == "__main__":
    model, text, *commands = sys.argv[1:]
    save_tiny_model(model)
    with open(text, "w") as stream:
        stream.write(tiny_text(3000))
    found = []
    for command in commands:
        program, *words = shlex.split(command)
        found.append(run_tests(words) if program == "pytest" else run_verb(words, model, text))
    print(json.dumps(found))
