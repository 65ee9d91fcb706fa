"""llama.cpp in this process against transformers and itself: its tests, then an hour of SmolLM2.

    python -m checks.llamacpp [--out runs/llamacpp]

`make check-llamacpp` runs this, in the environment that `setup.sh` makes. It reads SmolLM2-135M from its own 4-bit
GGUF in `SIDES`: with transformers in fp32, and with llama.cpp through a cache of f16, q8_0 and q4_0, and with a
wrong rope (linear x2). Each side is read alone and its predictions are kept, so each reads a window once; then the
`PAIRS` are compared. Exits with 1 where a pair is not as it has to be.

All numbers go to `results.json` in --out, which `python -m tools.docs.doc_tables keep` keeps for the documentation.
What is finished there is not run again: about an hour on two cores.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.checkpoints.embedded_models import EMBEDDED
from lengthwise.cli.main import run as lengthwise
from lengthwise.cli.main import treat_sigterm_as_interrupt
from lengthwise.measure.comparison import comparison_of_kept
from lengthwise.report.comparison_verdict import verdict
from lengthwise.results import Results, Row, read_results
from lengthwise.runs import read_run
from lengthwise.text.embedded_texts import package_file
from tools.docs.llamacpp_tables import KIND

NAME = "smollm2-135m"
ENVIRONMENT = Path(".venv-llamacpp")
TESTS = ("checks/llamacpp/test_llama_cpp.py", "tests/subjects/test_llama_cpp.py")
LENGTHS = {4096: 2, 8192: 1}
"""Tokens of the windows -> pairs of windows."""
_TRANSFORMERS = "transformers"
SIDES: dict[str, tuple[str, ...]] = {
    "f16": (),
    "q8_0": ("kv_cache=q8_0",),
    "q4_0": ("kv_cache=q4_0",),
    "linear x2": ("rope_scaling=linear:2",),
    _TRANSFORMERS: ("dtype=float32",),
}
"""Name -> what `--a` changes of the side; all but one are llama.cpp's."""


@dataclass(frozen=True)
class Pair:
    """Two sides, and in which range their mean difference has to be at every length, in nats per token."""

    a: str
    b: str
    at_least: float
    at_most: float

    @property
    def arm(self) -> str:
        """What its rows are called."""
        return f"{self.b} against {self.a}"


PAIRS = (
    Pair(_TRANSFORMERS, "f16", 0.0, 0.1),
    Pair("f16", "q8_0", 0.0, 0.1),
    Pair("f16", "q4_0", 0.1, 0.4),
    Pair(_TRANSFORMERS, "linear x2", 0.8, 4.0),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/llamacpp"))
    out: Path = parser.parse_args().out
    with_llama_cpp()
    treat_sigterm_as_interrupt()
    if code := subprocess.run([sys.executable, "-m", "pytest", *TESTS]).returncode:
        sys.exit(code)
    out.mkdir(parents=True, exist_ok=True)
    for length, windows in LENGTHS.items():
        for side in SIDES:
            keep(side, length, windows, out)
    results = found(out)
    (out / "results.json").write_text(results.to_json())
    failures = unexpected(results)
    print(*results.notes, *failures, sep="\n")
    if failures:
        sys.exit(1)


def with_llama_cpp() -> None:
    """Go on in the environment of setup.sh where this one has no llama.cpp."""
    python = ENVIRONMENT / "bin" / "python"
    if importlib.util.find_spec("llama_cpp") is None and Path(sys.prefix).name != ENVIRONMENT.name:
        os.execv(python, [str(python), *sys.orig_argv[1:]])


def keep(side: str, length: int, windows: int, out: Path) -> None:
    """The predictions of one side in its run folder, unless they are there."""
    folder = folder_of(side, length, out)
    if (folder / "results.json").exists() and not read_results(folder / "results.json").partial:
        return
    model = NAME if side == _TRANSFORMERS else f"llama.cpp:{gguf()}"
    words = ["compare", model, "--lengths", length, "--windows", windows, "--out", folder]
    for change in SIDES[side]:
        words += ["--a", change]
    shown = [str(word) for word in (*words, *(["--resume"] if folder.exists() else []))]
    print("$ lengthwise", *shown, flush=True)
    if code := lengthwise(shown):
        sys.exit(f"exit code {code}")


def folder_of(side: str, length: int, out: Path) -> Path:
    """The run folder of a side."""
    return out / f"{side.replace(' ', '-')}-{length}"


def gguf() -> Path:
    """SmolLM2's GGUF file, in its PyPI package."""
    [(module, file)] = EMBEDDED[NAME]["gguf"]
    return package_file(module, file, install=EMBEDDED[NAME]["install"])


def found(out: Path) -> Results:
    """The numbers of all pairs, from the kept predictions."""
    rows: list[Row] = []
    notes: list[str] = []
    for pair in PAIRS:
        for length in LENGTHS:
            sides = [read_run(folder_of(side, length, out)) for side in (pair.a, pair.b)]
            results = comparison_of_kept(*sides)
            # One tolerance for each length, which a row of the whole run does not say.
            rows += [replace(row, model=NAME, arm=pair.arm, length=length) for row in results.rows]
            notes.append(f"{pair.arm}, {length:,} tokens: {' '.join(verdict(results.rows))}")
    versions = {
        name: importlib.metadata.version(name) for name in ("llama-cpp-python", "torch", "transformers")
    }
    config: dict[str, Any] = {"lengths": LENGTHS, "sides": {k: list(v) for k, v in SIDES.items()}}
    return Results(
        kind=KIND,
        model_name=NAME,
        config=config,
        rows=rows,
        notes=notes,
        provenance={"llama.cpp": versions},
    )


def unexpected(results: Results) -> list[str]:
    """What is not as it has to be."""
    said = []
    for pair in PAIRS:
        for row in results.select(arm=pair.arm, metric="difference", position=None):
            if row.value is None or not pair.at_least <= row.value <= pair.at_most:
                said.append(f"{row.arm}, {row.length} tokens: {row.value} nats per token apart")
    return said


if __name__ == "__main__":
    main()
