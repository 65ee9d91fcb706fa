"""Old names, kept until evaluation no longer imports them."""

from __future__ import annotations

from typing import Any

from lengthwise.models.plan import reading_cost
from lengthwise.models.resolve import read_config


def cost_of(job: Any, resolved: Any, *, tokens: int, at_once: int) -> dict[str, Any]:
    """Parameters, memory and time of a model that reads `tokens` tokens in all, `at_once` in one pass."""
    config = read_config(resolved)
    return reading_cost(config, tokens=tokens, at_once=at_once, dtype=job.dtype, device=job.device).to_dict()
