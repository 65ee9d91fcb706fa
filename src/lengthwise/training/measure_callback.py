"""Measuring a model while it is trained."""

from __future__ import annotations

import contextlib
import logging
import math
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback

from lengthwise.errors import UsageError, require_integer, require_kind
from lengthwise.measure.runner import check_run, run
from lengthwise.training.sections import check_direction

if TYPE_CHECKING:
    from collections.abc import Iterator

    from transformers import TrainerControl, TrainerState

    from lengthwise.measure.measurement import Measurement
    from lengthwise.results import Row

logger = logging.getLogger(__name__)


class MeasureCallback(TrainerCallback):
    """Measures the model at each evaluation, or every so many steps, and adds the numbers to the Trainer's own.

        trainer.add_callback(MeasureCallback(trainer, Misalignment(lengths=(1024,)), "books"))

    There is one number per headline row: `eval_misalignment/jeffreys@1024`, `eval_limit/benefit@512,distance=256`. It
    goes to the log_history and every tracker of `report_to`, and that of an evaluation is in its metrics too: name it
    in `metric_for_best_model`, with `greater_is_better`, to keep the best model and for `EarlyStoppingCallback`. A
    number that could not be measured is not logged, and no improvement.

    The model is measured in eval mode, in the Trainer's precision, by every process; training continues with the same
    numbers as without the callback.

    Args:
        trainer: whose model is measured.
        measurement: what is measured: Misalignment(...), Perplexity(...), ...
        text: what is read: a name or path, a corpus, or a list of strings. Default: "books", or nothing for a
            measurement that reads no text.
        every: steps between measurements, outside of evaluations; None measures at each evaluation.

    Raises:
        UsageError: the Trainer has no tokenizer (`processing_class`), or `greater_is_better` for a loss; the text
            cannot be read, or is not used; the measurement cannot work with this model and text.
    """

    def __init__(
        self, trainer: Trainer, measurement: Measurement, text: Any = None, *, every: int | None = None
    ) -> None:
        require_kind("trainer", trainer, Trainer, "a Trainer of transformers")
        self._trainer = trainer
        self._measurement = measurement
        self._every = every
        self._tokenizer = trainer.processing_class
        if self._tokenizer is None:
            raise UsageError("the Trainer has no tokenizer", fix="Trainer(processing_class=...)")
        check_direction(trainer.args)
        if every is not None:
            require_integer("every", every, low=1, unit="steps, or None")
        with self._reading():
            # Read and tokenized once, and not at each measurement.
            self._text = check_run(measurement, (trainer.model, self._tokenizer), text)

    def on_train_begin(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Go before the callbacks that read the metrics, such as early stopping."""
        if self._every is None and args.eval_strategy == "no" and not args.eval_on_start:
            logger.warning("nothing is measured: eval_strategy is 'no' and every is None; give one of them")
        callbacks = self._trainer.callback_handler.callbacks
        callbacks.remove(self)
        callbacks.insert(0, self)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Every `every` steps."""
        if self._every is not None and state.global_step % self._every == 0:
            self._measured(control)

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """At each evaluation, without `every`; of several data sets with the first."""
        metrics, sets = kwargs["metrics"], self._trainer.eval_dataset
        others = list(sets)[1:] if isinstance(sets, dict) else []
        if self._every is None and not any(f"eval_{name}_loss" in metrics for name in others):
            metrics |= self._measured(control)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """The model in eval mode and in the Trainer's precision."""
        model: Any = self._trainer.model
        training = model.training
        model.eval()
        try:
            with self._trainer.accelerator.autocast():
                yield
        finally:
            model.train(training)

    def _measured(self, control: TrainerControl) -> dict[str, float]:
        """The numbers by their names, which are logged; NaN for one without a value."""
        with self._reading():
            done = run(self._measurement, (self._trainer.model, self._tokenizer), self._text)
        found = {logged_name(row): row.value for row in done.rows if row.is_headline}
        # Logging clears the request for the step's own log.
        wanted = control.should_log
        self._trainer.log({name: value for name, value in found.items() if value is not None})
        control.should_log = wanted
        return {name: math.nan if value is None else value for name, value in found.items()}


def logged_name(row: Row) -> str:
    """eval_TASK/METRIC@LENGTH of a headline row, and what else tells it from others, as in @512,distance=64."""
    others = {name: getattr(row, name) for name in ("context", "distance", "kept", "arm", "seed")}
    at = [] if row.length is None else [str(row.length)]
    at += [f"{name}={value}" for name, value in others.items() if value is not None]
    return f"eval_{row.task}/{row.metric}" + (f"@{','.join(at)}" if at else "")
