"""Rows as studies have them, with made-up numbers."""

from collections.abc import Sequence
from typing import Any

from lengthwise.results import Row


def by_seed(values: Sequence[float], **given: Any) -> list[Row]:
    """A row for each seed, of the loss unless another number is named."""
    of = {"model": "m", "task": "perplexity", "metric": "loss"} | given
    return [Row(**of, value=value, seed=seed) for seed, value in enumerate(values)]
