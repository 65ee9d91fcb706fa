"""Measuring while a model trains: a callback for any transformers Trainer, with or without our objective."""

from __future__ import annotations

from typing import Any

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import Measurement
from lengthwise.measure.runner import run
from lengthwise.text.tokens import tokenize


class MeasureCallback(TrainerCallback):
    """Measures the model at each evaluation, or every so many steps, and logs the numbers with the Trainer's own.

        trainer.add_callback(MeasureCallback(trainer, Misalignment(lengths=(1024,)), "books", every=100))

    Each log has one number per headline row, named TASK/METRIC@LENGTH, as in `misalignment/jeffreys@1024`: it
    goes to the state's log_history and to every tracker of `report_to`. The model is measured in eval mode, in the
    Trainer's precision, by every process; training continues with the same numbers as without the callback.

    Args:
        trainer: whose model is measured.
        measurement: what is measured: Misalignment(...), Perplexity(...), ...
        text: what is read: a name or path, documents, or a list of strings.
        every: steps between measurements; None measures at each evaluation.

    Raises:
        UsageError: the Trainer has no tokenizer (`processing_class`); the text cannot be read.
    """

    def __init__(
        self, trainer: Trainer, measurement: Measurement, text: Any, *, every: int | None = None
    ) -> None:
        self._trainer = trainer
        self._measurement = measurement
        self._every = every
        self._tokenizer = trainer.processing_class
        if self._tokenizer is None:
            raise UsageError("the Trainer has no tokenizer", fix="Trainer(processing_class=...)")
        if every is not None and every < 1:
            raise UsageError(f"every is {every}", expected="1 or more steps, or None")
        self._documents = tokenize(text, self._tokenizer)

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Every `every` steps."""
        if self._every is not None and state.global_step % self._every == 0:
            self._log(control)

    def on_evaluate(self, args: Any, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """At each evaluation, without `every`."""
        if self._every is None:
            self._log(control)

    def _log(self, control: TrainerControl) -> None:
        model: Any = self._trainer.model
        training = model.training
        model.eval()
        try:
            with self._trainer.accelerator.autocast():
                done = run(self._measurement, (model, self._tokenizer), self._documents)
        finally:
            model.train(training)
        rows = (row for row in done.rows if row.is_headline and row.value is not None)
        # Logging clears the request for the step's own log.
        wanted = control.should_log
        self._trainer.log({f"{row.task}/{row.metric}@{row.length}": row.value for row in rows})
        control.should_log = wanted
