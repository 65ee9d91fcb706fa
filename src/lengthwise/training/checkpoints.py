"""Which checkpoints are whole: a run can be killed while one is being written."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lengthwise.files import atomic_write_json
from lengthwise.models.extension.saving import write_extension_files

_MARK = "complete.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest `checkpoint-N` in `folder` whose files are all there in full; None if there is none."""
    found = [(int(match[1]), path) for path in folder.glob("*") if (match := _NAME.fullmatch(path.name))]
    return next((path for _, path in sorted(found, reverse=True) if is_complete(path)), None)


def is_complete(checkpoint: Path) -> bool:
    """Whether every file that was listed when the checkpoint was finished still has the size it had."""
    try:
        sizes = json.loads((checkpoint / _MARK).read_text())
        return all((checkpoint / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


def checkpoint_step(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, checkpoint
    return int(match[1])


class CheckpointMark(TrainerCallback):
    """Puts the tokenizer into each checkpoint, and the record of an extension; then a list of its files, as a
    sign that it is whole.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """After the Trainer has written its files."""
        if args.world_size > 1:
            # Every process writes its own random state into the folder.
            torch.distributed.barrier()
        if not state.is_world_process_zero:
            return
        assert args.output_dir is not None
        checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self._tokenizer.save_pretrained(checkpoint)
        write_extension_files(kwargs["model"], checkpoint)
        files = (path for path in checkpoint.rglob("*") if path.is_file() and path.name != _MARK)
        sizes = {str(path.relative_to(checkpoint)): path.stat().st_size for path in files}
        atomic_write_json(checkpoint / _MARK, sizes)
