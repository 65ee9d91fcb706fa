"""Many models as they are: each is loaded, extended where it says so, and measured once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate
from lengthwise.results import Results
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import Quantity, range_over_seeds
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.tiny_models import TinyModel


def model_arm(
    name: str, start: TinyModel | str, length: int, times: int, method: str | None = None, **samples: int
) -> Arm:
    """One model, read at `length` and `times` as many tokens; `method` extends it that far.

    `samples` are windows of misalignment and segments of the loss.
    """
    return Arm(
        name=name + (f", {method} x{times}" if method else ""),
        starts=(start,),
        method=method,
        factor=times if method else 1,
        measures={
            "misalignment": {"lengths": [length], "windows": samples["windows"]},
            "perplexity": {"lengths": [length, times * length], "segments": samples["segments"]},
        },
        compared=False,
    )


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of a study at one scale; a tiny one is pretrained with each of `seeds` seeds."""

    kind: str
    arms: tuple[Arm, ...]
    seeds: int = 3

    def experiment(self) -> tuple[Experiment, Scale]:
        """No arm is trained. Rows have the model's name as their arm, and its pretraining seed."""
        arms = tuple(replace(arm, starts=self._starts(arm)) for arm in self.arms)
        experiment = Experiment(kind=self.kind, arms=arms, seeded=True, dtype="float32")
        return experiment, Scale(model="tiny-books", measures={}, seeds=self.seeds)

    def _starts(self, arm: Arm) -> tuple[TinyModel | str, ...]:
        [start] = arm.starts
        if isinstance(start, TinyModel):
            return tuple(replace(start, seed=seed) for seed in range(self.seeds))
        return (str(start),)

    def plan(self) -> list[tuple[Experiment, Scale]]:
        """What a dry run adds up: each model alone, by its own shape."""
        experiment, scale = self.experiment()
        found: list[tuple[Experiment, Scale]] = []
        for arm in experiment.arms:
            starts = tuple(start for start in arm.starts if isinstance(start, TinyModel))
            model = scale.model if starts else str(arm.starts[0])
            alone = replace(scale, model=model, seeds=len(arm.starts), starts=starts)
            found.append((replace(experiment, arms=(arm,)), alone))
        return found


def run_models(out: Path, scale: Models, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Measure every model on held-out books: see `Experiment.run`."""
    experiment, at = scale.experiment()
    return experiment.run(out, at, resume=resume, overwrite=overwrite)


def study_of_models(
    title: str, sections: Callable[[Results, Path], list[Section]], scales: dict[str, Models]
) -> Study:
    """Models as a study of one part."""
    part = Part(run=run_models, sections=sections, scales=scales, plan=lambda scale: scale.plan())
    return Study(title=title, parts=(part,), takes=("seeds",))


def lengths_of(results: Results, name: str) -> tuple[int, int]:
    """T of a model and the longest context that it reads, in tokens; misalignment is measured at T."""
    measures = results.config["arms"][name]["measures"]
    return measures["misalignment"]["lengths"][0], max(measures["perplexity"]["lengths"])


def number_of(results: Results, name: str, quantity: Quantity) -> Estimate | None:
    """The mean over pretraining seeds with the lowest and the highest; None where a model lacks it."""
    trained, _ = lengths_of(results, name)
    return range_over_seeds([row for row in results.rows if row.arm == name and quantity.is_in(row, trained)])
