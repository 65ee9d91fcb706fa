"""Theorem 2 as a study: exact errors by test length, the bounds, and linear attention trained on samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes

from lengthwise.report.drawing import COLORS, Curve, Picture, curve_picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row
from lengthwise_studies.computed import computed
from lengthwise_studies.section3.cells import SCALES, Scale
from lengthwise_studies.section3.grid import ORIGINAL, Spread, spread
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic import theorem2
from lengthwise_studies.synthetic.reparameterization import IDENTITY, constant_error
from lengthwise_studies.synthetic.tasks import BIT_TASKS
from lengthwise_studies.synthetic.theorem2 import TASKS

LONGEST = 10
PRINTED = "as printed (Eq. 15, 20, 22)"
CORRECTED = "the paper's table, exact"
RANK_ONE = "best table of rank 1"
FULL = "best table"
LOWER, UPPER = "lower bound", "upper bound"
CONSTANT = "best constant"
TRAINED = {1: "trained on samples, head dimension 1", 2: "trained on samples, head dimension 2"}
ARMS = (PRINTED, CORRECTED, RANK_ONE, FULL, *TRAINED.values(), CONSTANT, LOWER, UPPER)
NOTES = (
    "Exact errors and losses are by enumeration in fp64, over the last bit and the number of ones.",
    "Trained: Adam on sampled strings of length 10, every prefix predicted (Eq. 8); the interval is "
    "from the best to the worst seed.",
    "The bounds are our own constants for theorem 2 (`docs/explanation/theory.md`); the paper states an order.",
)


def _rows(scale: Scale) -> Iterator[Row]:
    """Exact errors and those of trained models at every test length of the scale."""
    for task in TASKS:
        yield from _task_rows(task, scale)


def _task_rows(task: str, scale: Scale) -> Iterator[Row]:
    lengths = range(1, scale.test_length + 1)
    exact = {
        CORRECTED: theorem2.ansatz(task, LONGEST),
        RANK_ONE: theorem2.rank_one_minimum(task, LONGEST),
        FULL: theorem2.full_minimum(task, LONGEST),
    }
    trained = {
        arm: theorem2.train_tables(task, LONGEST, seeds=range(scale.seeds), rank=rank, steps=scale.steps)
        for rank, arm in TRAINED.items()
    }
    # One band for every table that is drawn: no prediction lies outside of [-A, A].
    largest = max(table.abs().max().item() for table in (*exact.values(), *trained.values()))
    for arm, table in exact.items():
        yield _row(task, "train_loss", theorem2.objective(task, table, LONGEST).item(), arm=arm)
    for length in lengths:
        yield from _errors(
            task,
            length,
            {
                PRINTED: theorem2.printed_error(task, LONGEST, length),
                CORRECTED: theorem2.corrected_error(task, LONGEST, length),
                RANK_ONE: theorem2.error(task, exact[RANK_ONE], length).item(),
                FULL: theorem2.error(task, exact[FULL], length).item(),
            },
        )
    for length in lengths:
        lower, upper = theorem2.growth_bounds(task, largest, length)
        constant, _ = constant_error(BIT_TASKS[task], IDENTITY, train_length=LONGEST, length=length)
        yield from _errors(task, length, {LOWER: lower, UPPER: upper, CONSTANT: constant})
    for arm, tables in trained.items():
        losses = theorem2.objective(task, tables, LONGEST).tolist()
        yield _row(task, "train_loss", spread(losses), arm=arm)
        measured = theorem2.measured_errors(task, tables, lengths, samples=scale.samples)
        for length, by_seed in zip(lengths, measured.T.tolist(), strict=True):
            yield from _errors(task, length, {arm: spread(by_seed)})


def _errors(task: str, length: int, by_arm: Mapping[str, float | Spread]) -> list[Row]:
    return [_row(task, "mse", error, arm=arm, length=length) for arm, error in by_arm.items()]


def _row(task: str, metric: str, value: float | Spread, **about: Any) -> Row:
    numbers: dict[str, Any] = value.plain if isinstance(value, Spread) else {"value": value}
    return Row(model="linear attention", task=task, metric=metric, unit=ORIGINAL, **numbers, **about)


def sections(results: Results, folder: Path) -> list[Section]:
    """What each table of numbers loses in training and errs by, and the picture of its growth."""
    return [
        Section(
            title="Theorem 2, exactly",
            paragraphs=[
                "Linear attention on strings of fair bits is a table of four numbers, so its training objective "
                "and its error at any length are short sums. The paper's order of growth is right; one printed "
                "constant and one minimiser are wrong.",
            ],
            tables=[_table(results)],
            figures=growth_picture(results),
            notes=results.notes,
        )
    ]


def growth_picture(results: Results) -> list[Picture]:
    """Error by test length for each task: exact, bounded, and measured on trained models."""
    dashed = len(COLORS)
    styles = {PRINTED: 1 + dashed, CORRECTED: 6, RANK_ONE: 0, FULL: 2, TRAINED[1]: 3, TRAINED[2]: 5}
    styles[CONSTANT] = 4 + dashed

    def dress(axes: Axes, task: str, _: Sequence[float]) -> None:
        axes.axvspan(1, LONGEST, color="#E69F00", alpha=0.13, linewidth=0)
        lower, upper = (_curve(results, task, arm, 0) for arm in (LOWER, UPPER))
        axes.fill_between(lower.x, lower.y, upper.y, color="#000000", alpha=0.07, linewidth=0)
        axes.set_yscale("symlog", linthresh=1e-2 if task == "mean" else 1)

    found = curve_picture(
        {task: [_curve(results, task, arm, style) for arm, style in styles.items()] for task in TASKS},
        name="theory-growth",
        title="Error of linear attention by test length",
        across="test length (bits)",
        up="mean squared error",
        share_y=False,
        from_zero=TASKS,
        dress=dress,
        caption="Grey: between the lower and the upper bound of theorem 2 with constants, for the largest entry "
        "of all tables drawn. Shaded: training lengths. The printed curve for sum is twice the error of the paper's "
        "own table.",
    )
    return [found] if found else []


def _curve(results: Results, task: str, arm: str, style: int) -> Curve:
    rows = results.select(task=task, arm=arm, metric="mse")
    return Curve(
        label=arm,
        x=[row.length or 0 for row in rows],
        y=[row.value or 0 for row in rows],
        low=[row.ci_low for row in rows],
        high=[row.ci_high for row in rows],
        style=style,
    )


def _table(results: Results) -> Table:
    longest = max(row.length or 0 for row in results.rows)
    shown = [length for length in (20, 35, 50) if length <= longest] or [longest]
    rows = []
    for task, arm in product(TASKS, ARMS):
        cells: list[str | None] = [task, arm]
        for metric, length in (("train_loss", None), *(("mse", length) for length in shown)):
            found = results.select(task=task, arm=arm, metric=metric, length=length)
            cells.append(_shown(found[0]) if found else None)
        rows.append(cells)
    return Table(
        columns=["task", "table of linear attention", "training loss", *(f"error at {at}" for at in shown)],
        rows=rows,
        caption=f"Theorem 2, trained on prefixes of lengths 1..{LONGEST}",
    )


def _shown(row: Row) -> str:
    if row.value is None or row.ci_low is None or row.ci_high is None:
        return f"{row.value:.6g}"
    return Spread(row.value, row.ci_low, row.ci_high).text


run_theorem2 = computed(
    "synth-theory", _rows, model_name="theory", notes=lambda scale: NOTES, train_length=LONGEST
)


def part(**options: Any) -> Part:
    """Theorem 2 as a part of a study, with other fields of `Part` where given."""
    return Part(run=run_theorem2, sections=sections, scales=SCALES, **options)


THEOREM2 = Study(
    title="Theorem 2: does the error grow as claimed?", parts=(part(),), takes=("seeds", "steps")
)
