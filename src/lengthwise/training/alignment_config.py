"""The objective's settings among those of a Trainer: for HfArgumentParser, and saved with every checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from transformers import TrainingArguments

from lengthwise.alignment.divergences import CrossEntropyOn, Detach, DivergenceName, Objective

OBJECTIVE_FIELDS = tuple(each.name for each in fields(Objective))


@dataclass
class AlignmentArguments:
    """The objective's fields of a config class: `class MyConfig(AlignmentArguments, SFTConfig)`, for any Trainer."""

    alpha: float = field(
        default=0.1, metadata={"help": "Weight of the divergence. The paper uses 0.1 to 0.3 with sce."}
    )
    divergence: DivergenceName = field(
        default="sce", metadata={"help": "What alpha weighs: see `lengthwise ls methods`."}
    )
    detach: Detach = field(
        default="none", metadata={"help": "The side or sides that get no gradient from the divergence."}
    )
    min_context: int | None = field(
        default=None,
        metadata={"help": "Least context of a paired token in the short view, in tokens. Default: L // 2."},
    )
    ce_on: CrossEntropyOn = field(
        default="both", metadata={"help": "The view whose cross entropy is trained on: both, long or short."}
    )

    def objective(self) -> Objective:
        """These fields as an Objective.

        Raises:
            UsageError: as `Objective`.
        """
        return Objective(**{name: getattr(self, name) for name in OBJECTIVE_FIELDS})


@dataclass
class AlignmentConfig(AlignmentArguments, TrainingArguments):
    """transformers' TrainingArguments with the objective's fields: saved with them, and parsed by HfArgumentParser.

    Raises:
        UsageError: as `Objective`.
    """

    def __post_init__(self) -> None:
        self.objective()
        super().__post_init__()
