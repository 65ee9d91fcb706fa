"""Measuring many models as they are: each is loaded, extended where it says so, and measured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from lengthwise.models import load
from lengthwise.models.extending import extend
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.studies.arms import Arm, Measures, Scale, slug
from lengthwise.studies.experiments import Experiment
from lengthwise.studies.measured_model import measure
from lengthwise.studies.paired_claims import Quantity
from lengthwise.studies.tiny_models import TinyModel
from lengthwise.text import load_corpus


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

    @property
    def slug(self) -> str:
        """Its folder's name."""
        return slug(self.name)


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
        corpus = load_corpus(text, split="test")
        rows: list[Row] = []
        for one in models:
            for seed, model in enumerate(one.models):
                loaded = load(model if isinstance(model, str) else str(model.build()), dtype="float32")
                if one.method is not None:
                    extend(loaded.model, one.method, factor=one.factor)
                loaded.name = model if isinstance(model, str) else model.name
                found = measure(
                    loaded, corpus, one.measures, folder.path / "parts" / one.slug / f"seed-{seed}"
                )
                rows += [
                    replace(row, arm=one.name, seed=seed) for each in found.values() for row in each.rows
                ]
        results = Results(kind=kind, model_name=kind, config=config, rows=rows, notes=[])
        folder.write_results(results)
        return results


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
