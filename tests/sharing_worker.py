"""The second process of test_sharing.py: the same runs as the first, which writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from lengthwise.measure import MEASUREMENTS, run
from lengthwise.results import Results
from lengthwise.settings import Subject


def run_all(jobs: list[dict[str, Any]], folder: Path | None) -> dict[str, Results]:
    """Each job's results; in `folder`, unless it is None, a run folder for each."""
    found: dict[str, Results] = {}
    for job in jobs:
        found[job["name"]] = run(
            MEASUREMENTS[job["verb"]].measurement(**job["spec"]),
            Subject(**job["run"]),
            out=None if folder is None else folder / job["name"],
            resume=folder is not None,
        )
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    run_all(json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2]))
