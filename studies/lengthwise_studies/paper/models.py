"""Many models as they are, each loaded, extended where its arm names a method, and measured once."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.report.tables import Estimate
from lengthwise.results import Results
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import Quantity, range_of
from lengthwise_studies.paper.correlations import Key
from lengthwise_studies.tiny_models import TinyModel


def model_arm(start: TinyModel | str, length: int, times: int, method: str = "", **samples: int) -> Arm:
    """One model, read at `length` and `times` as many tokens; `method` extends it that far.

    `samples` are windows of misalignment and segments of the loss.
    """
    return Arm(
        name=Key(start if isinstance(start, str) else start.configuration, method, times).name,
        own_start=start,
        method=method or None,
        factor=times if method else 1,
        measures={
            "misalignment": {"lengths": [length], "windows": samples["windows"]},
            "perplexity": {"lengths": [length, times * length], "windows": samples["segments"]},
        },
        compared=False,
    )


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of Table 1 at one scale; a tiny one is pretrained with each of `seeds` seeds."""

    arms: tuple[Arm, ...]
    seeds: int = 1
    cards: int | None = None  # NVIDIA H200s whose time a dry run tells; None is this machine, measured

    def plan(self) -> list[tuple[Experiment, Scale]]:
        """What a dry run adds up: the arms of each start, by its name."""
        starts: dict[TinyModel | str | None, list[Arm]] = {}
        for arm in self.arms:
            starts.setdefault(arm.own_start, []).append(arm)
        return [
            _experiment(
                replace(self, arms=tuple(arms)),
                start.configuration if isinstance(start, TinyModel) else start or _TINY,
            )
            for start, arms in starts.items()
        ]


_TINY = "tiny-books"


def _experiment(models: Models, name: str = _TINY) -> tuple[Experiment, Scale]:
    """No arm is trained. Rows have the model's name as their arm, and its pretraining seed."""
    experiment = Experiment(kind="table1", arms=models.arms, seeded=True, dtype="float32")
    return experiment, Scale(model=name, measures={}, seeds=models.seeds)


def run_models(out: Path, models: Models, **how: Any) -> Results:
    """Measure every model on held-out books: see `Experiment.run`."""
    experiment, scale = _experiment(models)
    return experiment.run(out, scale, **how)


def keys_of(results: Results) -> dict[str, Key]:
    """What each arm of a run of `Models` is."""
    arms = results.config["arms"]
    plain = [Key(name) for name, of in arms.items() if "method" not in of]
    ways = {(of["method"], int(of["factor"])) for of in arms.values() if "method" in of}
    named = {key.name: key for key in (*plain, *(Key(key.model, *way) for key in plain for way in ways))}
    return {name: named[name] for name in arms}


def lengths_of(results: Results, name: str) -> tuple[int, int]:
    """T of a model and the longest context that it reads, in tokens; misalignment is measured at T."""
    measures = results.config["arms"][name]["measures"]
    return measures["misalignment"]["lengths"][0], max(measures["perplexity"]["lengths"])


def number_of(results: Results, name: str, quantity: Quantity) -> Estimate | None:
    """The mean over pretraining seeds with the lowest and the highest; None where a model lacks it."""
    trained, _ = lengths_of(results, name)
    return range_of(results.rows, quantity, trained, name)
