"""The cases of `tests/alignment/triton_cases.py` on the GPU; on a CPU through Triton's interpreter."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from xml.etree import ElementTree

from part import ROOT, Result, options

CASES = "tests/alignment/triton_cases.py"


def main() -> None:
    asked = options()
    result = Result(asked.result)
    result.keep(ok=None, headline="did not end")
    interpreted = asked.device == "cpu"
    report = asked.work / "cases.xml"
    # A case compiles its kernels, which takes a core some seconds; and a wrong access ends its own process only.
    workers = min(12, os.cpu_count() or 1)
    spread = ["-n", str(workers)] if not interpreted and importlib.util.find_spec("xdist") else []
    # Newer and older packages warn of other things: no error here.
    command = [sys.executable, "-m", "pytest", "-q", CASES, "-o", "addopts=--import-mode=importlib", *spread]
    command += [
        "-W",
        "ignore",
        "-o",
        "filterwarnings=",
        "--tb=short",
        "--no-header",
        "-p",
        "no:cacheprovider",
    ]
    if asked.small:
        command += ["-k", "rows_without_partner or weight_of_zero or the_objective"]
    environment = os.environ | {"TRITON_INTERPRET": "1" if interpreted else "0", "PYTEST_ADDOPTS": ""}
    done = subprocess.run([*command, f"--junitxml={report}"], cwd=ROOT, env=environment, check=False)
    cases = read_report(report) if report.exists() else []
    failed = [case for case in cases if case["outcome"] != "passed"]
    passed = len(cases) - len(failed)
    result.keep(
        code=done.returncode,
        passed=passed,
        failed=failed,
        seconds={case["name"]: case["seconds"] for case in cases},
        ok=done.returncode == 0 and passed > 0,
        headline=f"{passed} of {len(cases)} passed" + " in the interpreter" * interpreted,
        failures=[f"{case['name']}: {case['message']}" for case in failed],
    )


def read_report(path: os.PathLike[str]) -> list[dict]:
    """Name, outcome, seconds, message and traceback of each case."""
    found = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        found.append(
            {
                "name": case.get("name"),
                "outcome": "passed" if bad is None else bad.tag,
                "seconds": float(case.get("time") or 0),
                "message": "" if bad is None else (bad.get("message") or "")[:1500],
                "traceback": "" if bad is None else (bad.text or "")[-6000:],
            }
        )
    return found


if __name__ == "__main__":
    main()
