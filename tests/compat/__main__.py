"""`make compat`: a part of the tests on other versions of Python and of the dependencies.

    python tests/compat [--folder DIR] [NAME...]

`lowest` has the lowest versions that pyproject.toml allows, the others those of constraints.txt. uv makes the
environments and finds the interpreters; one that it neither finds nor can download is reported as not tested.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWEST = ("--resolution", "lowest-direct")
CONSTRAINED = ("--constraint", "constraints.txt")
ENVIRONMENTS = {"lowest": ("3.11", LOWEST), "3.12": ("3.12", CONSTRAINED), "3.13": ("3.13", CONSTRAINED)}
# For each dependency whose interface is used widely, the tests of what uses it.
TESTS = (
    "test_cache.py",
    "test_config.py",
    "test_readme.py",
    "test_results.py",
    "alignment/test_formulas.py",
    "cli/test_measuring.py::test_json_is_alone_on_stdout",
    "cli/test_merge_cp.py",
    "models/test_gguf.py::test_converted_once_and_equal",
    "positions/test_rope_vectors.py",
    "report/test_drawing.py",
    "report/test_html.py",
    "report/test_tables.py",
    "served/test_endpoint.py",
    "text",
)
SHOWN = (
    "torch",
    "transformers",
    "tokenizers",
    "peft",
    "accelerate",
    "datasets",
    "numpy",
    "pydantic",
    "cyclopts",
)
VERSIONS = (
    "import json, platform, importlib.metadata as m; "
    f"print(json.dumps({{'python': platform.python_version()}} | {{n: m.version(n) for n in {SHOWN!r}}}))"
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
        own = ["uv", "pip", "install", "--python", str(python), "--no-deps", "--editable", "."]
        subprocess.run(own, cwd=ROOT, check=True)
        ready.touch()
    return python


def tested(python: Path) -> tuple[dict[str, str], str]:
    """The versions in an environment, and the last line of pytest."""
    found = subprocess.run([str(python), "-c", VERSIONS], capture_output=True, text=True, check=True).stdout
    # Older libraries warn of what newer ones no longer have. Warnings are errors in `make test`.
    how = (
        "-q -p no:cacheprovider -o filterwarnings=default --disable-warnings --continue-on-collection-errors"
    )
    words = [
        "-m",
        "pytest",
        *how.split(),
        "-m",
        "not slow and not real",
        *(f"tests/{name}" for name in TESTS),
    ]
    done = subprocess.run(
        [str(python), *words],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )
    print(done.stdout)
    return json.loads(found), done.stdout.strip().splitlines()[-1]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--folder", type=Path, default=ROOT / ".venv-compat", help="where the environments are"
    )
    parser.add_argument("names", nargs="*", default=list(ENVIRONMENTS), help=f"of {', '.join(ENVIRONMENTS)}")
    given = parser.parse_args()
    lines, failed = [], False
    for name in given.names:
        python = made(given.folder, name)
        if python is None:
            lines.append(f"{name}: not tested, there is no Python {ENVIRONMENTS[name][0]}")
            continue
        versions, end = tested(python)
        failed |= "failed" in end or "error" in end
        lines.append(
            f"{name}: {end}\n    {', '.join(f'{what} {version}' for what, version in versions.items())}"
        )
    print("\n".join(lines))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
