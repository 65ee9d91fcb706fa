"""Measuring a model while it is trained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from lengthwise.errors import UsageError
from lengthwise.measure.given import check_second, named_subject, text_of
from lengthwise.measure.runner import run
from lengthwise.text import tokenize

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState

    from lengthwise.measure.measurement import Measurement
    from lengthwise.results import Row


class MeasureCallback(TrainerCallback):
    """Measures the model at each evaluation, or every so many steps, and logs the numbers with the Trainer's own.

        trainer.add_callback(MeasureCallback(trainer, Misalignment(lengths=(1024,)), "books", every=100))

    Each log has one number per headline row: `misalignment/jeffreys@1024`, `limit/benefit@distance=64`. It goes to
    the state's log_history and to every tracker of `report_to`. The model is measured in eval mode, in the Trainer's
    precision, by every process; training continues with the same numbers as without the callback.

    Args:
        trainer: whose model is measured.
        measurement: what is measured: Misalignment(...), Perplexity(...), ...
        text: what is read: a name or path, a corpus, or a list of strings. Default: "books", or nothing for a
            measurement that reads no text.
        every: steps between measurements; None measures at each evaluation.

    Raises:
        UsageError: the Trainer has no tokenizer (`processing_class`); the text cannot be read, or is not used.
    """

    def __init__(
        self, trainer: Trainer, measurement: Measurement, text: Any = None, *, every: int | None = None
    ) -> None:
        self._trainer = trainer
        self._measurement = measurement
        self._every = every
        self._tokenizer = trainer.processing_class
        if self._tokenizer is None:
            raise UsageError("the Trainer has no tokenizer", fix="Trainer(processing_class=...)")
        if every is not None and every < 1:
            raise UsageError(f"every is {every}", expected="1 or more steps, or None")
        subject = named_subject(measurement, (trainer.model, self._tokenizer), text)
        check_second(measurement, subject, in_memory=True)
        self._text = text_of(measurement, subject, text)
        # Once, and not at each measurement.
        if self._text is not None and measurement.reads == "tokens":
            self._text = tokenize(self._text, self._tokenizer)

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
                done = run(self._measurement, (model, self._tokenizer), self._text)
        finally:
            model.train(training)
        found = {logged_name(row): row.value for row in done.rows if row.is_headline}
        # Logging clears the request for the step's own log.
        wanted = control.should_log
        self._trainer.log({name: value for name, value in found.items() if value is not None})
        control.should_log = wanted


def logged_name(row: Row) -> str:
    """TASK/METRIC@LENGTH of a headline row, and what else tells it from others: `limit/benefit@512,distance=64`."""
    others = {name: getattr(row, name) for name in ("context", "distance", "kept", "arm", "seed")}
    at = [] if row.length is None else [str(row.length)]
    at += [f"{name}={value}" for name, value in others.items() if value is not None]
    return f"{row.task}/{row.metric}" + (f"@{','.join(at)}" if at else "")
