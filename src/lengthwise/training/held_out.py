"""The `eval:` section of a recipe: what is measured while training, what stops it and which model stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from lengthwise.errors import UsageError, require_known
from lengthwise.settings import Settings, checked
from lengthwise.training.sections import Steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lengthwise.measure import Measurement

_LOWER = {
    *("cross_entropy", "cross_entropy_long", "cross_entropy_short", "misalignment", "divergence"),
    *("jeffreys", "js", "sce", "kl", "difference", "excess"),
    *("loss_key", "loss_best_temperature", "loss_b", "perplexity", "longppl"),
}
"""Metrics that are better when lower, besides losses."""


class Eval(Settings):
    """Measure the model on other text while it is trained, stop where it gets no better, and keep the best."""

    every: Steps
    """Steps between evaluations."""
    corpus: str | None = None
    """The text; null is that of `data`, of which other documents are read."""
    split: Literal["test", "train", "all"] = "test"
    """Documents of it."""
    windows: Steps = 16
    """Pairs of windows for the objective and its parts, `eval_loss`, `eval_jeffreys`, ..."""
    measurements: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """What else is measured on it: verbs with their settings, as in {ppl: {lengths: [1024]}}."""
    metric: str = "eval_loss"
    """The number that decides, by its name in the log: `eval_jeffreys`, `eval_perplexity/loss@1024`, ..."""
    patience: Steps | None = None
    """Training stops after so many evaluations without a better number; with null it never stops early."""
    keep_best: bool = False
    """The run's `model` is the best one of all evaluations, not the last. Every evaluation makes a checkpoint."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.measured()
        return self

    def measured(self) -> list[Measurement]:
        """The measurements; UsageError for an unknown verb or setting."""
        from lengthwise.measure import MEASUREMENTS

        for name in self.measurements:
            require_known(name, MEASUREMENTS, "nothing measures")
        return [
            checked(MEASUREMENTS[name].measurement, options, source=f"eval.measurements.{name}")
            for name, options in self.measurements.items()
        ]

    def mistakes(self, data: Any, save: int, *, sharded: bool) -> Iterator[str]:
        """What does not fit a recipe with this `data` and `save_every`."""
        if self.corpus in (None, data.corpus) and not data.split == "train" != self.split:
            yield "eval reads text that is trained on; expected data.split: train, or an eval.corpus"
        if self.keep_best and save % self.every:
            yield f"save_every = {save}: expected a multiple of eval.every = {self.every}, to keep the best"
        if self.keep_best and sharded:
            yield "eval.keep_best with parallel: shards of the best are not loaded again; expected whole copies"

    @property
    def arguments(self) -> dict[str, Any]:
        """For TrainingArguments."""
        return {
            "eval_strategy": "steps",
            "eval_steps": self.every,
            "metric_for_best_model": self.metric,
            "greater_is_better": not lower_is_better(self.metric),
            "load_best_model_at_end": self.keep_best,
            # The patience that is left.
            "restore_callback_states_from_checkpoint": True,
        }


def lower_is_better(name: str) -> bool:
    """Of a number that training logs: `eval_loss`, `eval_ppl/perplexity@512`."""
    metric = name.removeprefix("eval_").partition("/")[2] or name.removeprefix("eval_")
    metric = metric.partition("@")[0]
    return metric.endswith("loss") or metric in _LOWER


def check_direction(args: Any) -> None:
    """Refuse to keep the worst model: transformers takes every number as better when greater, but those named loss.

    UsageError if `greater_is_better` is True for a number that is better when lower.
    """
    name = args.metric_for_best_model
    if name is not None and args.greater_is_better and lower_is_better(name):
        raise UsageError(
            f"metric_for_best_model is {name}, of which the lower is the better, and greater_is_better is True",
            fix="greater_is_better=False",
        )
