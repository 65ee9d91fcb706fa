"""Measuring many models as they are: each is loaded, extended where it says so, and measured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.results import Results
from lengthwise.runs import RunFolder
from lengthwise_studies.arms import Arm, Measures, Scale
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.paired_claims import Quantity
from lengthwise_studies.tiny_models import TinyModel


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One model of a table.

    Args:
        name: in the table.
        models: what `load` takes, or tiny models; one for each pretraining seed.
        trained: T.
        measures: of it.
        method: a rope method switched on without training.
        factor: of `method`.
        group: models of one tokenizer.
    """

    name: str
    models: Sequence[str | TinyModel]
    trained: int
    measures: Measures
    method: str | None = None
    factor: float = 1.0
    group: str = "tiny"


def measure_models(
    kind: str,
    models: Sequence[Measured],
    out: Path,
    *,
    settings: dict[str, Any],
    text: str = "books",
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Measure every model on the test split of `text`; finished samples stay in `out`.

    Rows have the model's name as their arm, and its pretraining seed.

    Raises:
        UsageError: see `RunFolder`.
        Interrupted: Ctrl-C. Finished samples stay.
    """
    config = {
        **settings,
        "text": text,
        "models": {
            one.name: {
                "models": [getattr(model, "name", model) for model in one.models],
                "trained": one.trained,
                "group": one.group,
                "method": one.method,
                "factor": one.factor,
                "measures": {name: dict(of) for name, of in one.measures.items()},
            }
            for one in models
        },
    }
    with RunFolder(
        out, kind=kind, config=config, writes=("parts",), resume=resume, overwrite=overwrite
    ) as folder:
        if finished := folder.finished:
            return finished
        experiment, scale = _experiment(kind, models, text)
        results = experiment.filled(scale)
        results.model_name, results.config = kind, config
        folder.write_results(results)
        return results


def _experiment(kind: str, models: Sequence[Measured], text: str) -> tuple[Experiment, Scale]:
    arms = tuple(
        Arm(
            name=one.name,
            starts=tuple(one.models),
            method=one.method,
            factor=one.factor,
            measures=one.measures,
            compared=False,
        )
        for one in models
    )
    seeds = max(len(one.models) for one in models)
    return (
        Experiment(kind=kind, arms=arms, seeded=True, dtype="float32"),
        Scale(model="tiny-books", measures={}, seeds=seeds, text=text),
    )


def plan_models(kind: str, models: Sequence[Measured]) -> list[tuple[Experiment, Scale]]:
    """What a dry run adds up: each model as an experiment of one untrained arm."""
    found: list[tuple[Experiment, Scale]] = []
    for one in models:
        starts = tuple(model for model in one.models if isinstance(model, TinyModel))
        name = "tiny-books" if starts else str(one.models[0])
        scale = Scale(model=name, measures=one.measures, seeds=len(one.models), starts=starts)
        found.append((Experiment(kind=kind, arms=(Arm(name=one.name),), seeded=True), scale))
    return found


def numbers_of(results: Results, quantities: Mapping[str, Quantity]) -> dict[str, dict[str, float]]:
    """Model -> number -> mean over pretraining seeds; a number that a model lacks is left out."""
    found: dict[str, dict[str, float]] = {}
    for name, facts in results.config["models"].items():
        own = [row for row in results.rows if row.arm == name and row.value is not None]
        found[name] = {
            what: fmean(values)
            for what, quantity in quantities.items()
            if (
                values := [
                    row.value
                    for row in own
                    if row.value is not None and quantity.is_in(row, facts["trained"])
                ]
            )
        }
    return found
