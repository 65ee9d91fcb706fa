"""Losses of a model in one line, for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lengthwise.subjects import Predictor, Reading, Want


def token_losses(model: Predictor, views: Sequence[Any], labels: Sequence[Any]) -> list[Tensor]:
    """-log p of the labels after the last tokens of each view."""
    readings = [Reading(tokens=view, labels=own) for view, own in zip(views, labels, strict=True)]
    return [read.losses for read in model.read(readings)]


def next_logits(model: Predictor, view: Any) -> Tensor:
    """Logits of the token after a view, [1, V]."""
    [read] = model.read([Reading(tokens=view, want=Want.NEXT)])
    assert read.rows is not None
    return read.rows.logits(slice(0, 1))
