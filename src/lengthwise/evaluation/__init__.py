"""Evaluations: tasks with right answers over long input. Nothing here imports torch before it is used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lengthwise.evaluation.generate import likelihoods, replies
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.evaluation.running import run_eval
    from lengthwise.evaluation.tasks import TASKS

_HOMES = {
    "EvalJob": "job",
    "TASKS": "tasks",
    "likelihoods": "generate",
    "replies": "generate",
    "run_eval": "running",
}

__all__ = ["TASKS", "EvalJob", "likelihoods", "replies", "run_eval"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
