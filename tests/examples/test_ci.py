"""The check for CI: a harmless change passes, a dropped rope scaling fails."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lengthwise.testing import save_tiny_model
from tests.tiny_folders import texts_in

SCRIPT = Path(__file__).parents[2] / "examples" / "ci" / "long_context.sh"
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A model extended to 128 tokens."""
    return save_tiny_model(tmp_path / "base", max_position_embeddings=128, rope_parameters=YARN)


def _check(folder: Path, new: Path, *options: str) -> subprocess.CompletedProcess[str]:
    texts_in(folder / "text", 3, 400)
    # Where the tests run, `lengthwise` is not always on the path.
    command = folder / "bin" / "lengthwise"
    command.parent.mkdir(exist_ok=True)
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lengthwise "$@"\n')
    command.chmod(0o755)
    out = folder / f"run-{len([*folder.glob('run-*')])}"
    surroundings = {
        "PATH": f"{command.parent}:{os.environ['PATH']}",
        "LENGTHWISE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "LENGTH": "96",
        "WINDOWS": "3",
        "OUT": str(out),
    }
    words = ["bash", SCRIPT, folder / "base", new, "--text", folder / "text", "--split", "all", *options]
    done = subprocess.run(
        [str(word) for word in words], env=os.environ | surroundings, capture_output=True, text=True
    )
    # The picture is there whatever the thresholds say, and what it says is printed last, beside the results.
    said = (out / "card" / "card.md").read_text().splitlines()[0].removeprefix("### ")
    assert said in done.stderr.splitlines()
    assert (out / "card" / "card.png").is_file()
    return done


def test_a_harmless_change_passes(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A random model uses nothing that is far back, so that there is nothing to lose: the gate says so.
    done = _check(tmp_path, base, "--b", "attn=eager")
    assert done.returncode == 5, done.stderr
    assert "could not decide: --fail-use" in done.stderr
    monkeypatch.setenv("FAIL_USE", "")
    done = _check(tmp_path, base, "--b", "attn=eager")
    assert done.returncode == 0, done.stderr


def test_a_dropped_scaling_fails(base: Path, tmp_path: Path) -> None:
    dropped = save_tiny_model(tmp_path / "dropped", max_position_embeddings=128)
    ours, theirs = (json.loads((folder / "config.json").read_text()) for folder in (base, dropped))
    assert ours["rope_parameters"]["rope_type"] == "yarn"
    assert theirs["rope_parameters"]["rope_type"] == "default"
    done = _check(tmp_path, dropped)
    assert done.returncode == 4, done.stderr
    assert "difference is above 0.1" in done.stderr
