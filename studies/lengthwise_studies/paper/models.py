"""Many models as they are: each is loaded, extended where it says so, and measured once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate
from lengthwise.results import Results
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.tiny_models import TinyModel
from lengthwise_studies.verdicts import range_over_seeds


@dataclass(frozen=True, kw_only=True)
class Models:
    """The models of a table at one scale.

    Args:
        kind: of the results.
        tiny: name, tiny model and rope method of each, with one start for each seed.
        real: arms of further models.
        windows, segments: samples of a tiny model.
        seeds: pretraining seeds.
    """

    kind: str
    tiny: tuple[tuple[str, TinyModel, str | None], ...]
    real: tuple[Arm, ...] = ()
    windows: int = 48
    segments: int = 48
    seeds: int = 3

    def experiment(self) -> tuple[Experiment, Scale]:
        """Every model is an arm that is not trained."""
        arms = [
            model_arm(
                name,
                tuple(replace(model, seed=seed) for seed in range(self.seeds)),
                model.length,
                4,
                method=method,
                windows=self.windows,
                segments=self.segments,
            )
            for name, model, method in self.tiny
        ]
        experiment = Experiment(kind=self.kind, arms=(*arms, *self.real), seeded=True, dtype="float32")
        return experiment, Scale(model="tiny-books", measures={}, seeds=self.seeds)

    def run(self, out: Path, *, resume: bool, overwrite: bool) -> Results:
        """Measure every model on held-out books; rows have its name as their arm, and its pretraining seed."""
        experiment, scale = self.experiment()
        facts = {
            arm.name: {
                "models": [getattr(start, "name", start) for start in arm.starts],
                "method": arm.method,
                "factor": arm.factor,
                "measures": arm.measures,
            }
            for arm in experiment.arms
        }
        settings = {"seeds": self.seeds, "models": facts}
        return experiment.run(out, scale, settings=settings, resume=resume, overwrite=overwrite)

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


def model_arm(
    name: str,
    starts: tuple[TinyModel | str, ...],
    length: int,
    times: int,
    *,
    method: str | None,
    windows: int,
    segments: int,
) -> Arm:
    """One model, read at `length` and `times` as many tokens; `method` extends it that far."""
    return Arm(
        name=name + (f", {method} x{times}" if method else ""),
        starts=starts,
        method=method,
        factor=times if method else 1,
        measures={
            "misalignment": {"lengths": [length], "windows": windows},
            "perplexity": {"lengths": [length, times * length], "segments": segments},
        },
        compared=False,
    )


def study_of_models(
    title: str, sections: Callable[[Results, Path], list[Section]], scales: dict[str, Models]
) -> Study:
    """Models as a study of one part."""

    def run(out: Path, scale: Models, *, resume: bool = False, overwrite: bool = False) -> Results:
        return scale.run(out, resume=resume, overwrite=overwrite)

    part = Part(run=run, sections=sections, scales=scales, plan=lambda scale: scale.plan())
    return Study(title=title, parts=(part,), takes=("seeds",))


def length_of(results: Results, name: str) -> int:
    """T of a model in tokens: misalignment is measured there."""
    measures: dict[str, Any] = results.config["models"][name]["measures"]
    return measures["misalignment"]["lengths"][0]


def number_of(results: Results, name: str, quantity: Quantity) -> Estimate | None:
    """The mean over pretraining seeds with the lowest and the highest; None where a model lacks it."""
    length = length_of(results, name)
    own = [row for row in results.rows if row.arm == name and quantity.is_in(row, length)]
    return range_over_seeds(own)
