"""What test_distributed.py starts: run the jobs of a JSON file, one after the other."""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from trainers import train_double, train_stream

from lengthwise.training import Recipe, train


def run_recipe(out: Path, *, settings: dict[str, Any]) -> None:
    train(Recipe(**settings), out)


def run_jobs(jobs: list[dict[str, Any]]) -> None:
    kinds = {"recipe": run_recipe, "double": train_double, "stream": train_stream}
    for job in jobs:
        kinds[job["kind"]](out=Path(job["out"]), **job["arguments"])


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    run_jobs(json.loads(Path(sys.argv[1]).read_text()))
