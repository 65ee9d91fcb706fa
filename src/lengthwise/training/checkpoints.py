"""The checkpoints of a training run: which are whole, where a run continues, and what is kept."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

from lengthwise.files import atomic_write_text, first_damaged, seal, share
from lengthwise.models.extension import write_extension_files
from lengthwise.runs import read_metrics

logger = logging.getLogger(__name__)

_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints_in(folder: Path) -> list[Path]:
    """Every `checkpoint-N` in `folder`, the newest first."""
    found = (path for path in folder.glob("*") if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted(found, key=checkpoint_step, reverse=True)


def checkpoint_step(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    return int(checkpoint.name.removeprefix("checkpoint-"))


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` whose files are what was saved; None if there is none.

    A warning names what is damaged in each newer one.
    """
    for checkpoint in checkpoints_in(folder):
        if (damaged := first_damaged(checkpoint)) is None:
            return checkpoint
        logger.warning("%s is damaged or missing: an earlier checkpoint is used", checkpoint / damaged)
    return None


def complete_checkpoint(checkpoint: Path, model: Any, tokenizer: Any, kept: Collection[int]) -> None:
    """Add the tokenizer and the record of an extension to what the Trainer wrote, and mark the checkpoint as whole.

    Of the checkpoints at other steps than `kept` the last two stay.
    """
    tokenizer.save_pretrained(checkpoint)
    write_extension_files(model, checkpoint)
    seal(checkpoint, hashes=False)
    share(checkpoint)
    for older in checkpoints_in(checkpoint.parent)[2:]:
        if checkpoint_step(older) not in kept:
            shutil.rmtree(older)


def forget_steps_after(run: Path, step: int) -> None:
    """Drop what a run that continues from a step will write again: later metrics and half-written checkpoints."""
    path = run / "metrics.jsonl"
    if path.exists():
        kept = [record for record in read_metrics(path) if record["step"] <= step]
        atomic_write_text(path, "".join(json.dumps(record) + "\n" for record in kept))
    for checkpoint in checkpoints_in(run / "checkpoints"):
        if checkpoint_step(checkpoint) > step:
            shutil.rmtree(checkpoint)
