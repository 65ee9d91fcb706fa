"""The objective's settings as arguments of a Trainer."""

from __future__ import annotations

from dataclasses import dataclass, field, make_dataclass
from typing import Any

from transformers import TrainingArguments

from lengthwise.alignment.divergences import Objective
from lengthwise.errors import UsageError

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


@dataclass
class AlignmentConfig(AlignmentArguments, TrainingArguments):
    """TrainingArguments with the objective's fields: saved with them, and parsed by HfArgumentParser."""
