"""What a run shows and keeps while it trains: a progress bar, a line of metrics per step, whole checkpoints."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lengthwise.files import atomic_write_json, atomic_write_text
from lengthwise.models.extension import write_extension_files
from lengthwise.progress import progress
from lengthwise.training.trainer import PARTS

METRICS = ("loss", *PARTS, "alpha", "learning_rate", "grad_norm", "offset", "paired_positions")


class MetricsLog(TrainerCallback):
    """Passes the metrics of each step to `append`, in the process that writes the run folder."""

    def __init__(self, append: Callable[[Mapping[str, Any]], None]) -> None:
        self._append = append

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """A step's log has all metrics; the Trainer's closing one has none of them."""
        if logs is not None and "offset" in logs and state.is_world_process_zero:
            self._append({"step": state.global_step, **{name: logs[name] for name in METRICS}})


def forget_metrics_after(path: Path, step: int) -> None:
    """Drop the lines of `metrics.jsonl` that a resumed run will write again, and a torn last line."""
    if not path.exists():
        return
    kept: list[str] = []
    for line in path.read_text().splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except ValueError:
            break
    atomic_write_text(path, "".join(line + "\n" for line in kept))


class TrainingProgress(TrainerCallback):
    """One bar with the time left and the latest loss, on standard error."""

    def __init__(self) -> None:
        self._bar: tqdm[Any] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Open the bar, at the step from which the run continues."""
        if state.is_world_process_zero:
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
        """Show the loss and move on."""
        if self._bar is not None and logs is not None and "offset" in logs:
            self._bar.set_postfix(loss=f"{logs['loss']:.4f}", refresh=False)
            self._bar.update(state.global_step - self._bar.n)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar."""
        self.close()

    def close(self) -> None:
        """Close the bar, also after an error."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


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
    """Adds the tokenizer and the record of an extension to each checkpoint; last, the list of its files, which marks
    it as whole."""

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
