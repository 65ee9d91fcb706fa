"""The state of a `Budget` in the checkpoints of any transformers Trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from lengthwise.training.budget import Budget


class BudgetState(TrainerCallback, ExportableState):
    """Saves a budget's state in `trainer_state.json` of each checkpoint, and continues from it in a resumed run.

        trainer.add_callback(BudgetState(Budget(nats=0.01)))
        alpha = budget_of(trainer).update(...)

    Update the budget before the Trainer saves, that is within the step (`training_step`) and not in a callback of its
    end. The state is restored in `on_train_begin`. The Trainer's own way (`restore_callback_states_from_checkpoint`,
    off by default) works too; it replaces every such callback by a new one, so look the budget up with `budget_of`.

    A checkpoint of a run without a budget has no state: the budget then starts at that step.

    Args:
        budget: a Budget, or what its `to_dict` gave.
    """

    def __init__(self, budget: Budget | Mapping[str, Any]) -> None:
        self.budget = budget if isinstance(budget, Budget) else Budget.from_dict(budget)

    def state(self) -> dict[str, Any]:
        """What the Trainer writes into the checkpoint."""
        return {"args": {"budget": self.budget.to_dict()}, "attributes": {}}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Take the state of the checkpoint from which the run continues."""
        # A dict by now; a new run's holds what `state` gave. The Trainer saves only under keys that exist.
        states: Any = state.stateful_callbacks
        saved = states.setdefault(type(self).__name__, self.state())
        self.budget.resume(Budget.from_dict(saved["args"]["budget"]))


def budget_of(trainer: Trainer) -> Budget | None:
    """The budget of the trainer's `BudgetState`; None without one."""
    callbacks = trainer.callback_handler.callbacks
    return next((each.budget for each in callbacks if isinstance(each, BudgetState)), None)
