"""Old names, kept until evaluation no longer imports them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.measure.measurement import check_ready as check_model
from lengthwise.models import position_limits

__all__ = ["check_count", "check_model", "check_sizes", "rope_by_input_length"]


def check_sizes(name: str, sizes: Sequence[int], *, least: int) -> tuple[int, ...]:
    """The sizes in ascending order, each once."""
    if not sizes:
        raise UsageError(f"no {name} is given", expected="at least one")
    for size in sizes:
        check_count(name, size, least=least)
    return tuple(sorted({int(size) for size in sizes}))


def check_count(name: str, count: int, *, least: int = 1) -> None:
    """Raise UsageError unless `count` is an integer of at least `least`."""
    if isinstance(count, bool) or not hasattr(count, "__index__") or count < least:
        raise UsageError(f"{name} is {count!r}", expected=f"an integer of at least {least}")


def rope_by_input_length(model: Any) -> str | None:
    """The rope method if its frequencies depend on how many tokens are read in one go."""
    return position_limits.rope_by_input_length(model.config)
