"""The check for CI: a harmless change passes, a dropped rope scaling fails."""

import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lengthwise.testing import save_tiny_model
from tests.tiny_folders import texts_in

SCRIPT = Path(__file__).parents[2] / "examples" / "ci" / "long_context.sh"
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model extended to 128 tokens."""
    return save_tiny_model(tmp_path / "base", max_position_embeddings=128, rope_parameters=YARN)


COMMAND = """#!/bin/sh
printf '%s\\n' "$@" > {0}/words
read -r code < {0}/code
cat {0}/out
cat {0}/err >&2
exit "$code"
"""
"""In place of `lengthwise`: the words go through one pipe, and the exit code comes through another."""


@pytest.fixture
def check(start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the script on the base and another model. Its commands are forks, which need no start of their own."""
    texts_in(tmp_path / "text", 3, 400)
    command = tmp_path / "bin" / "lengthwise"
    command.parent.mkdir()
    command.write_text(COMMAND.format(tmp_path))
    command.chmod(0o755)
    for pipe in ("words", "code"):
        os.mkfifo(tmp_path / pipe)
    for name, value in {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "LENGTHWISE_CACHE": str(tmp_path / "cache"),
        "HF_HUB_OFFLINE": "1",
        "LENGTH": "96",
        "WINDOWS": "3",
    }.items():
        monkeypatch.setenv(name, value)

    def serve() -> None:
        while True:
            done = start(*(tmp_path / "words").read_text().splitlines()).wait()
            (tmp_path / "out").write_text(done.out)
            (tmp_path / "err").write_text(done.err)
            (tmp_path / "code").write_text(f"{done.returncode}\n")

    # It waits for the next command when the test has ended.
    threading.Thread(target=serve, daemon=True).start()

    def call(new: Path, *options: str) -> tuple[int, str]:
        out = tmp_path / f"run-{len([*tmp_path.glob('run-*')])}"
        monkeypatch.setenv("OUT", str(out))
        given = [tmp_path / "base", new, "--text", tmp_path / "text", "--split", "all", *options]
        script = subprocess.run(["bash", SCRIPT, *map(str, given)], capture_output=True, text=True)
        said = script.stderr
        # The picture is there whatever the thresholds say, and what it says is printed last, beside the results.
        headline = (out / "card" / "card.md").read_text().splitlines()[0].removeprefix("### ")
        assert headline in said.splitlines()
        assert (out / "card" / "card.png").is_file()
        return script.returncode, said

    return call


def test_a_harmless_change_passes(base: Path, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # A random model uses nothing that is far back, so that there is nothing to lose: the gate says so.
    code, said = check(base, "--b", "attn=eager")
    assert code == 5, said
    assert "could not decide: --fail-use" in said
    monkeypatch.setenv("FAIL_USE", "")
    code, said = check(base, "--b", "attn=eager")
    assert code == 0, said


@pytest.mark.usefixtures("base")
def test_a_dropped_scaling_fails(check: Any, tmp_path: Path) -> None:
    dropped = save_tiny_model(tmp_path / "dropped", max_position_embeddings=128)
    ours, theirs = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("base", "dropped"))
    assert ours["rope_parameters"]["rope_type"] == "yarn"
    assert theirs["rope_parameters"]["rope_type"] == "default"
    code, said = check(dropped)
    assert code == 4, said
    assert "difference is above 0.1" in said
