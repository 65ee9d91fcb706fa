"""What the dry run of every table costs, in CPU seconds and in times what `--explain` of it costs.

    python bench/dry_runs.py --scale default laptop

Each is a process of its own, in turn with its `--explain`, which loads the same modules and measures no machine.
A dry run is meant to stay under ten seconds at any scale.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from measuring import machine, spread

from lengthwise_studies.paper.all_tables import TABLES


def cpu_seconds(*words: str) -> float:
    """CPU time of `lengthwise reproduce` with these words, on one thread."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "lengthwise", "reproduce", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="*", default=["table1", *TABLES])
    parser.add_argument("--scale", nargs="*", default=["default"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    seconds: dict[str, dict[str, list[float]]] = {}
    print("| table | CPU seconds | in times `--explain` |")
    print("|---|--:|--:|")
    for name in given.tables:
        for scale in given.scale:
            words = (name, "--scale", scale)
            runs = [
                (cpu_seconds(*words, "--dry-run"), cpu_seconds(*words, "--explain"))
                for _ in range(given.repeats)
            ]
            dry, explained = map(list, zip(*runs, strict=True))
            seconds[f"{name} at {scale}"] = {"dry run": dry, "explain": explained}
            ratio = [one / other for one, other in runs]
            print(f"| {name} at {scale} | {spread(dry, 1)} | {spread(ratio)} |", flush=True)
    if given.out:
        record = {"machine": machine(1), "settings": {**vars(given), "out": None}, "seconds": seconds}
        given.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
