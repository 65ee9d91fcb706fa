"""Which of two numbers of an evaluation is the better one."""

from __future__ import annotations

from typing import Any

from lengthwise.errors import UsageError

_LOWER = {
    *("cross_entropy", "cross_entropy_long", "cross_entropy_short", "misalignment", "divergence"),
    *("jeffreys", "js", "sce", "kl", "difference", "excess"),
    *("loss_key", "loss_best_temperature", "loss_b", "perplexity", "longppl"),
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
