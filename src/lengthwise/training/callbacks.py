"""What a run shows and keeps while it trains: a line of metrics per step, a progress bar, whole checkpoints."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lengthwise.files import atomic_write_text, first_damaged, seal, share
from lengthwise.models.extension import write_extension_files
from lengthwise.progress import progress
from lengthwise.training.trainer import PARTS

logger = logging.getLogger(__name__)

METRICS = ("loss", *PARTS, "alpha", "learning_rate", "grad_norm", "offset", "paired_positions")
"""What a line of metrics.jsonl may hold; parts that the objective does not have are left out."""


class StepLog(TrainerCallback):
    """In the process that writes the run folder: a line of metrics per step, and a bar with the latest loss.

    Args:
        append: takes the metrics of each step.
    """

    def __init__(self, append: Callable[[Mapping[str, Any]], None]) -> None:
        self._append = append
        self._bar: tqdm[Any] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, at the step from which the run continues."""
        self._bar = progress(
            range(state.max_steps), what="training", total=state.max_steps, initial=state.global_step
        )

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A step's log has its metrics; the Trainer's closing one has none of them."""
        if logs is None or "offset" not in logs:
            return
        self._append({"step": state.global_step, **{name: logs[name] for name in METRICS if name in logs}})
        if self._bar is not None:
            self._bar.set_postfix(loss=f"{logs['loss']:.4f}", refresh=False)
            self._bar.update(state.global_step - self._bar.n)

    def close(self) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close()


def forget_steps_after(run: Path, step: int) -> None:
    """Drop what a run that continues from a step will write again: later metrics and half-written checkpoints.

    What follows a damaged line of metrics is dropped too.
    """
    path = run / "metrics.jsonl"
    kept: list[str] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, TypeError, KeyError, RecursionError):
            break
    if path.exists():
        atomic_write_text(path, "".join(line + "\n" for line in kept))
    for checkpoint in checkpoints_in(run / "checkpoints"):
        if checkpoint_step(checkpoint) > step:
            shutil.rmtree(checkpoint)


_NAME = re.compile(r"checkpoint-(\d+)")


def checkpoints_in(folder: Path) -> list[Path]:
    """Every `checkpoint-N` in `folder`, the newest first."""
    found = (path for path in folder.glob("*") if _NAME.fullmatch(path.name) and path.is_dir())
    return sorted(found, key=checkpoint_step, reverse=True)


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` whose files are what was saved; None if there is none.

    A warning names what is damaged in each newer one.
    """
    skipped: list[str] = []
    whole = None
    for checkpoint in checkpoints_in(folder):
        damaged = first_damaged(checkpoint)
        if damaged is None:
            whole = checkpoint
            break
        skipped.append(f"{checkpoint / damaged} is damaged or missing")
    if skipped:
        logger.warning(
            "%s; %s",
            ", ".join(skipped),
            "no earlier checkpoint is whole, so training starts at step 0"
            if whole is None
            else f"the last whole checkpoint is {whole}",
        )
    return whole


def checkpoint_step(checkpoint: Path) -> int:
    """N of `checkpoint-N`."""
    match = _NAME.fullmatch(checkpoint.name)
    assert match is not None, checkpoint
    return int(match[1])


class WholeCheckpoints(TrainerCallback):
    """Saves at the named steps too; adds the tokenizer and the record of an extension to each checkpoint, and last
    the list of its files, which marks it as whole. Of the others the last two stay."""

    def __init__(self, tokenizer: Any, save_at: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._save_at = save_at

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Ask for a checkpoint after a named step."""
        control.should_save |= state.global_step in self._save_at

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
        seal(checkpoint, hashes=False)
        share(checkpoint)
        for older in checkpoints_in(checkpoint.parent)[2:]:
            if checkpoint_step(older) not in self._save_at:
                shutil.rmtree(older)
