"""The objective's settings as arguments of a Trainer, and what its batches need of the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, make_dataclass
from typing import Any

from transformers import TrainingArguments

from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError
from lengthwise.machine import process_count
from lengthwise.training.collator import WindowDataset

_FIELDS = make_dataclass(
    "_FIELDS",
    [
        (name, each.annotation, field(default=each.default, metadata={"help": each.description}))
        for name, each in Objective.model_fields.items()
    ],
)


@dataclass
class AlignmentArguments(_FIELDS):
    """The fields of `Objective` in a config class of any Trainer: `class MyConfig(AlignmentArguments, SFTConfig)`."""

    def objective(self) -> Objective:
        """These fields as an Objective."""
        return Objective(**{name: getattr(self, name) for name in Objective.model_fields})

    def __post_init__(self) -> None:
        self.objective()
        # None without a config class among the bases: HfArgumentParser also takes these fields by themselves.
        getattr(super(), "__post_init__", lambda: None)()


def check_even_batches(args: TrainingArguments) -> None:
    """Raise UsageError where a process may have no batch at a step: the others would wait for its counts."""
    config: Any = args.accelerator_config
    if args.world_size > 1 and not config.even_batches:
        raise UsageError(
            "even_batches=False in several processes",
            expected="a batch for every process at each step: the counts of a step are summed over them",
            fix="leave even_batches out of accelerator_config",
        )


def check_steps(args: Any, windows: WindowDataset, *, training: bool) -> None:
    """Refuse batches that have samples of several steps, and optimizer steps that are a part of one."""
    own, when = windows.batch_size, "train" if training else "eval"
    size = getattr(args, name := f"per_device_{when}_batch_size")
    # Processes share a batch where it is split, and otherwise read one each.
    devices = 1 if args.accelerator_config.split_batches else process_count()
    step = size * args.gradient_accumulation_steps * devices
    if size and own % size and len(windows) > own:
        raise UsageError(
            f"{name} is {size}, and a step of the {when}_dataset has {own} samples, which share an offset",
            expected=f"a size that divides {own}",
            fix=f"{name}={math.gcd(own, size)}, or WindowDataset(..., batch_size={size})",
        )
    if training and step % own:
        raise UsageError(
            f"an optimizer step has {step} samples ({name} x gradient_accumulation_steps x processes), and one of "
            f"the train_dataset has {own}",
            expected=f"{own}, or a multiple of it",
            fix=f"WindowDataset(..., batch_size={step})",
        )
    by_length = "group_by_length" in (
        getattr(args, "train_sampling_strategy", None),
        getattr(args, "group_by_length", False) and "group_by_length",
    )
    for setting, given in (
        ("auto_find_batch_size=True", training and args.auto_find_batch_size),
        ("group_by_length", by_length and not training),
    ):
        if given:
            raise UsageError(
                f"{setting} would tear the steps of a WindowDataset apart",
                expected="batches in order, of a size that divides a step",
                fix="leave it out",
            )


@dataclass
class AlignmentConfig(AlignmentArguments, TrainingArguments):
    """TrainingArguments with the objective's fields: saved with them, and parsed by HfArgumentParser."""
