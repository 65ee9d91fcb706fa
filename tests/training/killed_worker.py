"""What test_killed.py starts: a run that kills itself at a step or half-way through a checkpoint."""

import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from lengthwise.runs import RunFolder
from lengthwise.training import Recipe, train


def kill() -> None:
    # So that a kill from elsewhere is not taken for this one.
    print("killing myself", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_step(step: int) -> None:
    original = RunFolder.append_metrics

    def append(folder: RunFolder, record: Any) -> None:
        original(folder, record)
        if record["step"] == step:
            kill()

    RunFolder.append_metrics = append  # type: ignore[method-assign]


def kill_in_checkpoint(step: int) -> None:
    original = torch.save

    def save(value: Any, path: Any, *arguments: Any, **named: Any) -> None:
        if f"checkpoint-{step}" in str(path):
            buffer = io.BytesIO()
            original(value, buffer)
            Path(path).write_bytes(buffer.getvalue()[: buffer.tell() // 2])
            kill()
        original(value, path, *arguments, **named)

    torch.save = save


if __name__ == "__main__":
    torch.set_num_threads(1)
    recipe = Recipe(**json.loads(Path(sys.argv[1]).read_text()))
    out, how, step = sys.argv[2], sys.argv[3], int(sys.argv[4])
    if how != "never":
        {"step": kill_at_step, "checkpoint": kill_in_checkpoint}[how](step)
    train(recipe, out, resume=True)
    if how == "never":
        whole = str(Path(out).with_name("whole"))
        train(recipe, whole)
