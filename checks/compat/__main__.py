"""`make compat`: a part of the tests on other versions of Python and of the dependencies.

    python tests/compat [--folder DIR] [NAME...]

`lowest` has the lowest versions that pyproject.toml allows, the others those of constraints.txt. uv makes the
environments and finds the interpreters; one that it neither finds nor can download is reported as not tested.
`avx2` runs the tests of numbers in the environment of this program as on a processor with no more than AVX2: sums are
rounded in another order there, so a tolerance that fits only one machine fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWEST = ("--resolution", "lowest-direct")
CONSTRAINED = ("--constraint", "constraints.txt")
ENVIRONMENTS = {"lowest": ("3.11", LOWEST), "3.12": ("3.12", CONSTRAINED), "3.13": ("3.13", CONSTRAINED)}
# For each dependency whose interface is used widely, the tests of what uses it.
TESTS = (
    "tests/test_cache.py",
    "tests/test_settings.py",
    "tests/test_yaml.py",
    "tests/test_readme.py",
    "tests/test_results.py",
    "tests/alignment/test_formulas.py",
    "tests/cli/test_measuring.py::test_json_is_alone_on_stdout",
    "tests/cli/test_merge_cp.py",
    "tests/models/test_gguf.py::test_converted_once_and_equal",
    "tests/positions/test_rope_vectors.py",
    "tests/report/test_drawing.py",
    "tests/report/test_html.py",
    "tests/report/test_tables.py",
    "tests/served/test_endpoint.py",
    "tests/text",
)
# Where sums are rounded otherwise than on the machine that made the numbers.
INSTRUCTIONS = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2"}}
NUMBERS = (
    "tests/test_golden_runs.py",
    "tests/alignment",
    "tests/evaluation/test_scoring.py",
    "tests/measure",
    "tests/models/test_hidden.py",
    "tests/positions",
    "studies/tests/synthetic",
    "tests/training/test_trainer.py",
)
NAMES = (*ENVIRONMENTS, *INSTRUCTIONS)
# Older libraries warn of what newer ones no longer have. Warnings are errors in `make test`.
TOLERANT = (
    *("-o", "filterwarnings=default", "--disable-warnings", "--continue-on-collection-errors"),
    *("-m", "not slow and not real"),
)


def made(folder: Path, name: str) -> Path | None:
    """The interpreter of an environment with the dependencies and pytest; None where there is no such Python."""
    version, how = ENVIRONMENTS[name]
    python = folder / name / "bin" / "python"
    ready = folder / name / ".ready"
    if not ready.exists():
        if subprocess.run(["uv", "venv", "--clear", "--python", version, str(folder / name)]).returncode != 0:
            return None
        install = ["uv", "pip", "install", "--python", str(python), *how]
        install += ["--requirement", "pyproject.toml", "pytest>=8.3"]
        subprocess.run(install, cwd=ROOT, check=True)
        own = ["uv", "pip", "install", "--python", str(python), "--no-deps"]
        own += ["--editable", ".", "--editable", "./studies"]
        subprocess.run(own, cwd=ROOT, check=True)
        ready.touch()
    return python


def last_line(python: Path, options: Sequence[str], tests: Sequence[str], environment: dict[str, str]) -> str:
    """Run tests; the last line of pytest, whose output is printed."""
    done = subprocess.run(
        [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *options,
            *tests,
        ],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    return done.stdout.strip().splitlines()[-1]


def passed(end: str) -> bool:
    """Whether the last line of pytest tells of tests, none of which failed."""
    return "passed" in end and "failed" not in end and "error" not in end


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".venv-compat", help="where the environments are"
    )
    parser.add_argument("names", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    given = parser.parse_args()
    lines, failed = [], False
    for name in given.names:
        if name in INSTRUCTIONS:
            end = last_line(Path(sys.executable), [], NUMBERS, INSTRUCTIONS[name])
        elif python := made(given.folder, name):
            end = last_line(python, TOLERANT, TESTS, {})
        else:
            lines.append(f"{name}: not tested, there is no Python {ENVIRONMENTS[name][0]}")
            continue
        failed |= not passed(end)
        lines.append(f"{name}: {end}")
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
