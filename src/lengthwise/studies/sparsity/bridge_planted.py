"""The bridge on planted tasks: exact numbers, and models that are trained on the task of known k and locality."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from lengthwise.report.html import Section
from lengthwise.report.tables import Cell as TableCell
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.sparsity.bridge import planted_jeffreys, planted_price, share_touched
from lengthwise.sparsity.planted import Anywhere, Within, sparse_parity
from lengthwise.sparsity.planted_views import Objective, Task, examine_views, losses_by, views
from lengthwise.studies.section3.side_by_side import run_missing
from lengthwise.studies.skeleton import Claim, Part, Verdict, claims_table
from lengthwise.studies.sparsity.grid import MODEL, OPTIMIZER, final, over_seeds, read_scale
from lengthwise.synthetic.training import one_thread, train
from lengthwise.synthetic.transformer import Architecture, StackedTransformer

WHOLE, BOTH, ALIGNED = "whole view, CE", "both views, CE", "both views, Jeffreys"
OBJECTIVES = {
    WHOLE: Objective(share=0.0, weight=0.0),
    BOTH: Objective(share=0.5, weight=0.0),
    ALIGNED: Objective(share=0.5, weight=1.0),
}
LEARNED, CLOSE, FOUND = 0.1, 0.1, 0.9
"""Learned: cross entropy at most this many nats above the noise's. Close to exact; nearly always."""


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
    config = {"scale": asdict(scale)}
    with RunFolder(out, kind="bridge-planted", config=config, resume=resume, overwrite=overwrite) as folder:
        if folder.finished:
            return folder.read_results()
        run_missing(
            {cell.key: cell for cell in CELLS},
            partial(run_cell, scale=scale),
            folder.samples,
            scale=scale,
            what="cells",
        )
        found = outcomes(folder.samples)
        results = Results(
            kind="bridge-planted",
            model_name=MODEL,
            config=config,
            rows=[row for cell, outcome in found.items() for row in cell_rows(cell, outcome)],
            notes=[
                f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads, no position encoding; "
                f"{scale.steps} steps of {scale.batch} samples with Adam; {scale.seeds} seeds. The begin marker "
                "tells k. All objectives see the same samples.",
                "Intervals are Student's over seeds. With no position encoding a skip in the positions changes "
                f"nothing, so skipped views are `{WHOLE}` here.",
            ],
            provenance={
                "seconds_of_training_and_testing": round(sum(one.seconds for one in found.values()), 1)
            },
        )
        folder.write_results(results)
        return results


def outcomes(log: SampleLog) -> dict[Cell, Outcome]:
    """The finished cells."""
    return {cell: Outcome(**log[cell.key]) for cell in CELLS if cell.key in log}


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


Numbers = dict[tuple[str, str, int, str, int | None], Row]
"""By law, objective, k, metric and distance."""


def numbers_of(rows: Iterable[Row]) -> Numbers:
    """The rows by what they are about."""
    return {
        (row.bucket or "", row.arm or "", int(row.task.rsplit(" ", 1)[1]), row.metric, row.distance): row
        for row in rows
    }


def sections(results: Results, folder: Path) -> list[Section]:
    """The exact numbers, and those of trained models beside them."""
    scale, numbers = read_scale(Scale, results), numbers_of(results.rows)
    claims = claims_table(claims_of(scale), numbers, ours="ours")
    return [
        Section(
            title="Planted tasks: exact",
            paragraphs=[
                f"Parity of k planted bits among {scale.length} tokens, flipped with probability {scale.noise:g}; "
                f"the first {scale.cut} are cut off. Disagreement of the best predictions is proportional to the "
                "share of samples in which the cut touches a planted bit. It rises with k; locality lowers it, but "
                "not below the share that is cut off. The price is what perfect agreement costs.",
            ],
            tables=[exact_table(scale)],
        ),
        Section(
            title="Planted tasks: trained models",
            paragraphs=[
                "The same task, learned from samples: cross entropy on the whole view, on both views, and on both "
                f"views with Jeffreys at weight {OBJECTIVES[ALIGNED].weight:g}. A sample is touched if the cut "
                "takes a planted bit, that is if far tokens decide it.",
            ],
            tables=[
                *([claims] if claims else []),
                trained_table(scale, numbers),
                distance_table(scale, numbers),
            ],
            notes=results.notes,
        ),
    ]


def exact_table(scale: Scale) -> Table:
    """Share touched, Jeffreys and price by k and locality; k = 1 is a needle at a random place."""
    rows: list[list[TableCell]] = []
    for k in scale.ks:
        cells: list[TableCell] = [k]
        for cell in CELLS:
            touched = share_touched(scale.length, scale.cut, k, cell.width(scale))
            jeffreys, price = (of(touched, scale.noise) for of in (planted_jeffreys, planted_price))
            cells.append(f"{touched:.3f}: {jeffreys:.2f}, {price:.2f}")
        rows.append(cells)
    return Table(
        columns=["k", "anywhere", f"within {scale.local}"],
        rows=rows,
        caption="Share of samples touched by the cut: Jeffreys, price (nats)",
        notes=[
            "k = 1 is a needle at a random place. At a known distance D from the end, Jeffreys is 0 if D is at most "
            "the near context and full beyond it."
        ],
    )


def trained_table(scale: Scale, numbers: Numbers) -> Table:
    """One line for each law, k and objective."""
    rows: list[list[TableCell]] = []
    for cell in CELLS:
        for k in scale.ks:
            best = planted_jeffreys(share_touched(scale.length, scale.cut, k, cell.width(scale)), scale.noise)
            for arm in OBJECTIVES:

                def at(metric: str, place: tuple[str, str, int] = (cell.key, arm, k)) -> TableCell:
                    row = numbers[*place, metric, None]
                    return Estimate(row.value, row.ci_low, row.ci_high)

                rows.append(
                    [
                        f"{cell.key}, k = {k}, {arm}",
                        f"{best:.2f}" if arm == BOTH else "",
                        at("jeffreys"),
                        at("jeffreys_untouched"),
                        at("loss_touched"),
                        at("loss_untouched"),
                        at("found"),
                    ]
                )
    noise = planted_price(1.0, scale.noise)
    return Table(
        columns=[
            "",
            "Jeffreys, exact",
            "Jeffreys",
            "of untouched",
            "loss with all context, touched",
            "untouched",
            "the k most influential tokens are the planted ones",
        ],
        rows=rows,
        caption="Trained models by what the cut takes (nats; the last column is a share of samples)",
        notes=[
            f"The exact number is that of the best predictions of both views. Forgetting a touched sample "
            f"altogether costs {noise:.2f} nats."
        ],
    )


def distance_table(scale: Scale, numbers: Numbers) -> Table:
    """Jeffreys by the distance of a single planted token (k = 1): a needle."""
    bins = distance_bins(scale)
    full = planted_jeffreys(1.0, scale.noise)
    near = scale.length - scale.cut
    rows: list[list[TableCell]] = [
        ["exact", *("0" if farthest <= near else f"{full:.2f}" for _, farthest in bins)]
    ]
    for arm in OBJECTIVES:
        found = [numbers["anywhere", arm, 1, "jeffreys", farthest] for _, farthest in bins]
        rows.append([arm, *(Estimate(row.value, row.ci_low, row.ci_high) for row in found)])
    return Table(
        columns=["Jeffreys, k = 1", *(f"D {nearest}-{farthest}" for nearest, farthest in bins)],
        rows=rows,
        caption=f"One planted bit at distance D from the end, near context {near} tokens",
    )


def claims_of(scale: Scale) -> tuple[Claim, ...]:
    """The bridge's statements on trained models."""
    places = [(cell, k) for cell in CELLS for k in scale.ks]

    def judged(
        holds: Callable[[Numbers, Cell, int], bool], needs: Sequence[str], shown: Callable[[Row], bool]
    ) -> Callable[[Numbers], Verdict | None]:
        """Counts the laws and k at which a statement holds, where the objectives in `needs` learned the task."""

        def judge(numbers: Numbers) -> Verdict | None:
            asked = [place for place in places if all(learned(scale, numbers, *place, arm) for arm in needs)]
            values = [row.value for row in numbers.values() if shown(row) and row.value is not None]
            ours = f"{min(values):.2f} to {max(values):.2f}"
            if not asked:
                return ours, "says nothing: not trained"
            right = sum(holds(numbers, *place) for place in asked)
            return ours, "holds" if right == len(asked) else f"holds for {right} of {len(asked)}"

        return judge

    def of(arm: str, metric: str) -> Callable[[Row], bool]:
        return lambda row: (row.arm, row.metric, row.distance) == (arm, metric, None)

    def exact(numbers: Numbers, cell: Cell, k: int) -> bool:
        best = planted_jeffreys(share_touched(scale.length, scale.cut, k, cell.width(scale)), scale.noise)
        return abs((numbers[cell.key, BOTH, k, "jeffreys", None].value or 0.0) / best - 1) <= CLOSE

    def forgets(numbers: Numbers, cell: Cell, k: int) -> bool:
        aligned, both = (numbers[cell.key, arm, k, "loss_touched", None] for arm in (ALIGNED, BOTH))
        return (aligned.ci_low or 0.0) > (both.ci_high or 0.0) + LEARNED

    def spares(numbers: Numbers, cell: Cell, k: int) -> bool:
        return (numbers[cell.key, WHOLE, k, "loss_touched", None].value or 9.0) <= _entropy(scale) + LEARNED

    def finds(numbers: Numbers, cell: Cell, k: int) -> bool:
        return (numbers[cell.key, WHOLE, k, "found", None].value or 0.0) >= FOUND

    return (
        Claim(
            place="the bridge",
            claim="a trained model disagrees as much as the best predictions",
            paper="in neither paper",
            judge=judged(exact, (BOTH,), of(BOTH, "jeffreys")),
            rule=f"Jeffreys of `{BOTH}` within {CLOSE:.0%} of the exact number, for each law and k",
        ),
        Claim(
            place="the bridge",
            claim="disagreement rises with k and falls with locality",
            paper="in neither paper",
            judge=rises_and_falls(scale),
            rule=f"`{BOTH}`: the interval at the largest k above that at k = 1 (anywhere), and above that of local "
            "ones at the largest k",
        ),
        Claim(
            place="the bridge",
            claim="alignment forgets the samples that far tokens decide, and no others",
            paper="in neither paper",
            judge=judged(forgets, (BOTH, ALIGNED), of(ALIGNED, "loss_touched")),
            rule=f"loss on touched samples more than {LEARNED:g} nats above that of `{BOTH}` (intervals), where the "
            f"loss on untouched ones is within {LEARNED:g} nats of the noise's entropy for both",
        ),
        Claim(
            place="the bridge",
            claim="training on whole views spares them",
            paper="in neither paper",
            judge=judged(spares, (WHOLE,), of(WHOLE, "loss_touched")),
            rule=f"loss of `{WHOLE}` on touched samples within {LEARNED:g} nats of the noise's entropy",
        ),
        Claim(
            place="the bridge",
            claim="the tokens that move a trained model most are the planted ones",
            paper="in neither paper",
            judge=judged(finds, (WHOLE,), of(WHOLE, "found")),
            rule=f"in {FOUND:.0%} of the samples or more, for each law and k",
        ),
    )


def rises_and_falls(scale: Scale) -> Callable[[Numbers], Verdict | None]:
    """Judges Jeffreys by k and by locality."""

    def judge(numbers: Numbers) -> Verdict | None:
        most = max(scale.ks)
        one = numbers["anywhere", BOTH, min(scale.ks), "jeffreys", None]
        many = numbers["anywhere", BOTH, most, "jeffreys", None]
        local = numbers["local", BOTH, most, "jeffreys", None]
        ours = ", ".join(Estimate(row.value, row.ci_low, row.ci_high).text for row in (one, many, local))
        ours += f": k = {min(scale.ks)}, k = {most}, k = {most} local"
        if not all(learned(scale, numbers, cell, k, BOTH) for cell in CELLS for k in (min(scale.ks), most)):
            return ours, "says nothing: not trained"
        ends = [(row.ci_low or 0.0, row.ci_high or 9.0) for row in (one, many, local)]
        apart = ends[1][0] > ends[0][1], ends[1][0] > ends[2][1]
        return ours, "holds" if all(apart) else "does not hold"

    return judge


def learned(scale: Scale, numbers: Numbers, cell: Cell, k: int, arm: str) -> bool:
    """Whether an objective learned the samples of that k that need no far token."""
    value = numbers[cell.key, arm, k, "loss_untouched", None].value
    return value is not None and value <= _entropy(scale) + LEARNED


def _entropy(scale: Scale) -> float:
    """Of the noise: the least cross entropy, in nats."""
    return math.log(2) - planted_price(1.0, scale.noise)


PLANTED = Part(run=run, sections=sections, scales=SCALES, folder="planted", heading="Planted tasks")
