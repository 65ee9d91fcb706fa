"""Each of the two processes of test_sharing.py: all jobs, and which samples this process appended."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from lengthwise.measure import MEASUREMENTS, run
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise.settings import Subject


def run_all(jobs: list[dict[str, Any]], folder: Path) -> dict[str, Results]:
    """Each job's results; in `folder` a run folder for each."""
    found: dict[str, Results] = {}
    for job in jobs:
        measurement = MEASUREMENTS[job["verb"]].measurement(**job["spec"])
        found[job["name"]] = run(measurement, Subject(**job["run"]), out=folder / job["name"], resume=True)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    own: list[str] = []
    append = SampleLog.append

    def note(log: SampleLog, key: str, record: dict[str, Any]) -> None:
        own.append(key)
        append(log, key, record)

    SampleLog.append = note
    both = Path(sys.argv[2])
    run_all(json.loads(Path(sys.argv[1]).read_text()), both)
    (both / f"own-{os.environ['RANK']}.json").write_text(json.dumps(own))
    # Rank 0 holds the store, which the other one reads the last results from.
    while not (both / "own-1.json").exists():
        time.sleep(0.02)
