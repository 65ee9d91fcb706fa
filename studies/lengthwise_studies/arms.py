"""What an experiment is made of: its arms, how large it is, and what they are called. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lengthwise.text import Split

if TYPE_CHECKING:
    from lengthwise_studies.tiny_models import TinyModel

Measures = Mapping[str, Mapping[str, Any]]
"""The settings of each measure, by name."""


@dataclass(frozen=True)
class Arm:
    """What is trained or measured: one model of an experiment, and what is measured of it.

    Args:
        name, question: of the curve or column; what the arm is for.
        changes: what differs from the recipe in training; None: not trained.
        recipe: that the arm is trained by; None: the experiment's.
        method, factor: a rope method switched on without training, and its factor.
        text: the corpus that it is measured on; None: the scale's.
        measures: what is measured of it, with settings over the scale's of the same measure; None: the scale's.
        own_start: what it starts from: a name, or a model to pretrain with the seed of the run; None: the scale's.
        compared, against: whether the arm is compared, and with which other; None: the experiment's reference.
    """

    name: str
    question: str = ""
    changes: tuple[str, ...] | None = None
    recipe: str | None = None
    method: str | None = None
    factor: float = 1.0
    text: str | None = None
    measures: Measures | None = None
    own_start: TinyModel | str | None = None
    against: str | None = None
    compared: bool = True

    def starts_at(self, seed: int | None) -> bool:
        """Whether the arm has a start of this seed: a model of a name has one."""
        return not (seed and isinstance(self.own_start, str))


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large an experiment is.

    Args:
        model: what all arms start from.
        measures: what is measured of every arm.
        seeds: fine-tuning seeds (data order and offsets); each trains every arm.
        steps: training steps; None: as the recipe says.
        changes: of the recipe, for all arms.
        text, split: the corpus that arms are measured on; held-out documents, unless nothing was trained on others.
        pretrained: what is pretrained in place of `model`, with the seed of each run.
        marks, mark_measures: steps after which every trained arm is measured too, and what is measured then.
    """

    model: str
    measures: Measures
    seeds: int = 1
    steps: int | None = None
    changes: tuple[str, ...] = ()
    text: str = "books"
    split: Split = "test"
    pretrained: TinyModel | None = None
    marks: tuple[int, ...] = ()
    mark_measures: Measures = field(default_factory=dict)

    def measures_of(self, arm: Arm) -> Measures:
        """What is measured of an arm."""
        if arm.measures is None:
            return self.measures
        return {name: {**self.measures.get(name, {}), **own} for name, own in arm.measures.items()}

    def start(self, seed: int | None, arm: Arm | None = None) -> TinyModel | str:
        """What arms of this seed start from, or this arm: the name of a model, or one to pretrain."""
        own = (arm.own_start if arm is not None else None) or self.pretrained or self.model
        return own if isinstance(own, str) else replace(own, seed=seed or 0)


def steps_at(steps: int, pace: float) -> int:
    """Steps of an arm that takes `pace` steps for each of the reference's."""
    return max(1, round(steps * pace))


def arm_after(name: str, steps: int | None) -> str:
    """What an arm is called after so many of the reference's steps; None: at the end."""
    return name if steps is None else f"{name} after {steps} steps"
