"""Small models of planted tasks of known k and locality: three objectives, two views, tests by what a cut takes."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise.report.tables import Estimate
from lengthwise.results import Results, Row
from lengthwise.studies.cell_runs import MODEL, run_cells
from lengthwise.studies.sparsity.planted import Anywhere, Within, sparse_parity
from lengthwise.studies.sparsity.planted_views import Objective, Task, examine_views, losses_by, views
from lengthwise.studies.sparsity.shares import OPTIMIZER, final, over_seeds
from lengthwise.synthetic.training import one_thread, train
from lengthwise.synthetic.transformer import Architecture, StackedTransformer

WHOLE, BOTH, ALIGNED = "whole view, CE", "both views, CE", "both views, Jeffreys"
OBJECTIVES = {
    WHOLE: Objective(share=0.0, weight=0.0),
    BOTH: Objective(share=0.5, weight=0.0),
    ALIGNED: Objective(share=0.5, weight=1.0),
}


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the trained part is.

    Args:
        seeds: models of each objective.
        steps: training steps.
        batch: samples a step and model.
        length, cut: T, and the first tokens that the short view does not see.
        local: the width that planted tokens lie within, where they are local.
        ks: k in training and at test.
        noise: probability that a label is flipped.
        samples: test samples for each k.
        bins: ranges of the distance of a single planted token.
        width, layers, heads: of every model; the inner layer is four times as wide.
        rate: of learning.
    """

    seeds: int = 3
    steps: int = 700
    batch: int = 40
    length: int = 24
    cut: int = 12
    local: int = 6
    ks: tuple[int, ...] = (1, 2, 4)
    noise: float = 0.01
    samples: int = 600
    bins: int = 6
    width: int = 32
    layers: int = 2
    heads: int = 4
    rate: float = 3e-3


SCALES = {
    "default": Scale(),
    "smoke": Scale(
        seeds=2,
        steps=4,
        batch=4,
        length=8,
        cut=4,
        local=4,
        ks=(1, 2),
        samples=32,
        bins=4,
        width=8,
        layers=1,
        heads=2,
    ),
}


@dataclass(frozen=True)
class Cell:
    """All objectives and seeds on one law of places, trained side by side."""

    local: bool

    @property
    def key(self) -> str:
        """In one word."""
        return "local" if self.local else "anywhere"

    def width(self, scale: Scale) -> int:
        """The largest span of the planted tokens."""
        return scale.local if self.local else scale.length


@dataclass(frozen=True)
class Outcome:
    """What a cell gave."""

    train_loss: dict[str, list[float]]
    """[seed] by objective."""
    numbers: dict[str, dict[str, list[float | None]]]
    """[seed] by objective and number, `k=K metric`."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The record of a sample log."""
        return asdict(self)


CELLS = (Cell(local=False), Cell(local=True))


@one_thread()
def run_cell(cell: Cell, scale: Scale) -> Outcome:
    """Train every objective and seed on the same samples, and test at every k."""
    started = time.perf_counter()
    law = sparse_parity(Within(scale.local) if cell.local else Anywhere())
    task = Task(law, scale.ks, scale.length, scale.cut, scale.noise)
    seeds = list(range(scale.seeds)) * len(OBJECTIVES)
    objectives = [one for one in OBJECTIVES.values() for _ in range(scale.seeds)]
    model = StackedTransformer(
        Architecture(
            vocabulary=task.vocabulary,
            value=True,
            width=scale.width,
            layers=scale.layers,
            heads=scale.heads,
            hidden=4 * scale.width,
        ),
        seeds,
    )
    losses = list(
        train(
            model,
            views(task, size=scale.batch, steps=scale.steps, seeds=seeds),
            OPTIMIZER,
            count=scale.steps,
            rates=[scale.rate] * len(seeds),
            losses=losses_by(objectives),
        )
    )
    numbers: dict[str, dict[str, list[float | None]]] = {name: {} for name in OBJECTIVES}

    def note(name: str, values: Tensor, where: Tensor | None = None) -> None:
        """The mean over samples of every model, as a number of its objective and seed."""
        some = values if where is None else values[:, where]
        means: list[float | None] = [None] * len(seeds)
        if some.shape[1]:
            means = some.double().mean(1).tolist()
        for index, own in enumerate(numbers.values()):
            own[name] = means[index * scale.seeds : (index + 1) * scale.seeds]

    for k in scale.ks:
        found = examine_views(model, task, k, samples=scale.samples, seed=1000 + k)
        note(f"k={k} found", found.found)
        for metric, values in (("jeffreys", found.jeffreys), ("loss", found.loss)):
            note(f"k={k} {metric}", values)
            note(f"k={k} {metric}_touched", values, found.touched)
            note(f"k={k} {metric}_untouched", values, ~found.touched)
        if k == 1:
            for nearest, farthest in distance_bins(scale):
                inside = (found.distance >= nearest) & (found.distance <= farthest)
                note(f"k=1 jeffreys_to_{farthest}", found.jeffreys, inside)
    train_loss = final(losses)
    return Outcome(
        {
            name: train_loss[index * scale.seeds : (index + 1) * scale.seeds]
            for index, name in enumerate(OBJECTIVES)
        },
        numbers,
        time.perf_counter() - started,
    )


def distance_bins(scale: Scale) -> list[tuple[int, int]]:
    """Ranges of the distance D to the end of the sample, both ends inside."""
    step = scale.length // scale.bins
    return [(first + 1, first + step) for first in range(0, scale.length, step)]


def run(out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Train and test both cells; a finished one is not run again."""
    return run_cells(
        "bridge-planted",
        CELLS,
        run_cell,
        Outcome,
        lambda found: [row for cell, outcome in found.items() for row in cell_rows(cell, outcome)],
        [
            f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads, no position encoding; "
            f"{scale.steps} steps of {scale.batch} samples with Adam; {scale.seeds} seeds. The begin marker tells k. "
            "All objectives see the same samples.",
            "Intervals are Student's over seeds. With no position encoding a skip in the positions changes nothing, "
            f"so skipped views are `{WHOLE}` here.",
        ],
        out,
        scale,
        name=MODEL,
        resume=resume,
        overwrite=overwrite,
    )


def cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """Every number with its interval over seeds."""
    rows = []
    for arm, numbers in outcome.numbers.items():
        for name, values in numbers.items():
            k, metric = name.split()
            distance = int(metric.rsplit("_", 1)[1]) if "_to_" in metric else None
            defined = [value for value in values if value is not None]
            mean = over_seeds(defined) if defined else Estimate(None)
            rows.append(
                Row(
                    model=MODEL,
                    task=f"noisy parity, {k.replace('=', ' = ')}",
                    metric=metric if distance is None else "jeffreys",
                    value=mean.value,
                    unit="share" if metric.startswith("found") else "nats",
                    arm=arm,
                    bucket=cell.key,
                    distance=distance,
                    ci_low=mean.low,
                    ci_high=mean.high,
                    n=len(values),
                )
            )
    return rows
