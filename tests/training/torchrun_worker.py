"""What test_distributed.py starts: run the jobs of a JSON file, one after the other."""

import json
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from trainers import train_double, train_stream

from lengthwise.machine import is_main_process
from lengthwise.training import Recipe, train
from lengthwise.training.training_run import checkpoint_step, checkpoints_in


def run_recipe(out: Path, *, settings: dict[str, Any], again_from: int | None = None) -> None:
    """Train; then once more from a checkpoint, as a kill behind that step leaves the run."""
    train(Recipe(**settings), out)
    if again_from is not None:
        if is_main_process():
            (out / "results.json").unlink()
            for later in checkpoints_in(out / "checkpoints"):
                if checkpoint_step(later) > again_from:
                    shutil.rmtree(later)
        torch.distributed.barrier()
        train(Recipe(**settings), out, resume=True)


def run_jobs(jobs: list[dict[str, Any]]) -> None:
    kinds = {"recipe": run_recipe, "double": train_double, "stream": train_stream}
    for job in jobs:
        kinds[job["kind"]](out=Path(job["out"]), **job["arguments"])


if __name__ == "__main__":
    warnings.simplefilter("error")
    torch.set_num_threads(1)
    run_jobs(json.loads(Path(sys.argv[1]).read_text()))
