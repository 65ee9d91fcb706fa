"""What a run shows and keeps while it trains: a progress bar, and one line of metrics a step."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from lengthwise.files import atomic_write_text
from lengthwise.progress import progress
from lengthwise.training.trainer import PARTS

METRICS = ("loss", *PARTS, "alpha", "learning_rate", "grad_norm", "offset", "paired_positions")


class MetricsLog(TrainerCallback):
    """Hands the metrics of each step to `append`, in the process that writes the run folder."""

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
        """Open the bar, at the step from which the run goes on."""
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
