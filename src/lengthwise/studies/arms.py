"""What an experiment is made of: its arms, how large it is, and what they are called. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from lengthwise.text import Split

Measures = Mapping[str, Mapping[str, Any]]
"""The settings of each measure, by name."""


def slug(name: str) -> str:
    """The folder's name of what is called so in tables."""
    return name.replace(",", "").replace(" ", "-").lower()


def samples_file(measure: str) -> str:
    """The file beside an arm's training that holds the samples of a measure."""
    return f"{measure.replace(' ', '-')}.jsonl"


class Start(Protocol):
    """A model of one pretraining seed."""

    @property
    def name(self) -> str:
        """Which model and seed."""
        ...

    def build(self) -> Path:
        """Its folder, trained at the first call."""
        ...


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One model of an experiment.

    Args:
        name: of the curve or column.
        question: what the arm is for.
        changes: what differs from the experiment's recipe in training; None: not trained.
        method: a rope method switched on without training, by `factor`.
        factor: of `method`.
        compared: whether the arm is compared with the reference.
    """

    name: str
    question: str = ""
    changes: tuple[str, ...] | None = None
    method: str | None = None
    factor: float = 1.0
    compared: bool = True

    @property
    def slug(self) -> str:
        """Its folder's name."""
        return slug(self.name)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large an experiment is.

    Args:
        model: what all arms start from.
        measures: what is measured of every arm.
        trained_measures: what is measured of trained arms in its place, which are then compared among themselves
            alone; None: the same.
        seeds: fine-tuning seeds (data order and offsets); each trains every arm.
        steps: training steps; None: as the recipe says.
        changes: of the recipe, for all arms.
        text: the corpus that arms are measured on.
        split: of this corpus. Held-out documents, unless nothing was trained on the others.
        starts: models of several pretraining seeds in place of `model`; seed s starts from number s, modulo their
            count.
        marks: steps after which every trained arm is measured too, before the last.
        mark_measures: what is measured then.
    """

    model: str
    measures: Measures
    trained_measures: Measures | None = None
    seeds: int = 1
    steps: int | None = None
    changes: tuple[str, ...] = ()
    text: str = "books"
    split: Split = "test"
    starts: tuple[Start, ...] = ()
    marks: tuple[int, ...] = ()
    mark_measures: Measures = field(default_factory=dict)

    @property
    def of_trained(self) -> Measures:
        """What is measured of every trained arm."""
        return self.measures if self.trained_measures is None else self.trained_measures

    def start(self, seed: int | None) -> str:
        """The name or folder of the model that arms of this seed start from."""
        return str(self.starts[(seed or 0) % len(self.starts)].build()) if self.starts else self.model


def seed_folder(parts: Path, seed: int | None) -> Path:
    """Where the arms of a seed are, below those of the experiment."""
    return parts if seed is None else parts / f"seed-{seed}"


def steps_at(steps: int, pace: float) -> int:
    """Steps of an arm that takes `pace` steps for each of the reference's."""
    return max(1, round(steps * pace))


def kept_checkpoints(steps: Iterable[int]) -> list[str]:
    """The changes of a recipe that keep a checkpoint after each of these steps."""
    kept = list(steps)
    return [f"save_at={kept}"] if kept else []


def arm_after(name: str, steps: int | None) -> str:
    """What an arm is called after so many of the reference's steps; None: at the end."""
    return name if steps is None else f"{name} after {steps} steps"


def is_final(name: str | None) -> bool:
    """False for the name of an arm after fewer steps, as `arm_after` makes it."""
    return name is None or re.search(r" after \d+ steps$", name) is None
