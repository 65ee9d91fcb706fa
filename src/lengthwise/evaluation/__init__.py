"""Evaluations: tasks with right answers over long input. Nothing here imports torch before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.evaluation.decoding import likelihoods, replies
    from lengthwise.evaluation.evaluate import Evaluation
    from lengthwise.evaluation.tasks import FAMILIES, TASKS

_HOMES = {
    "FAMILIES": "tasks",
    "TASKS": "tasks",
    "Evaluation": "evaluate",
    "likelihoods": "decoding",
    "replies": "decoding",
}

__all__ = ["FAMILIES", "TASKS", "Evaluation", "likelihoods", "replies"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
