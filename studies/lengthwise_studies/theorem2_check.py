"""Theorem 2 as a study: exact errors by test length, the bounds, and linear attention trained on samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

import torch

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise_studies.section3.cells import SCALES, Scale
from lengthwise_studies.section3.grid import ORIGINAL, Spread, spread
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic import theorem2
from lengthwise_studies.synthetic.reparameterization import IDENTITY, constant_error
from lengthwise_studies.synthetic.tasks import BIT_TASKS
from lengthwise_studies.synthetic.theorem2 import as_table, measured_errors, train_tables

LONGEST = 10
TASKS = tuple(theorem2.TARGETS)
MODEL = "linear attention"
PRINTED = "as printed (Eq. 15, 20, 22)"
CORRECTED = "the paper's table, exact"
RANK_ONE = "best table of rank 1"
FULL = "best table"
LOWER, UPPER = "lower bound", "upper bound"
CONSTANT = "best constant"
TRAINED = {1: "trained on samples, head dimension 1", 2: "trained on samples, head dimension 2"}


def run_theorem2(out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Exact errors and those of trained models at every test length of the scale, in a run folder.

    Raises:
        UsageError: see `RunFolder`.
    """
    settings = {"scale": asdict(scale), "train_length": LONGEST}
    with RunFolder(
        out, kind="synth-theory", config=settings, writes=("parts",), resume=resume, overwrite=overwrite
    ) as folder:
        if finished := folder.finished:
            return finished
        rows = [row for task in TASKS for row in _rows(task, scale)]
        results = Results(
            kind="synth-theory",
            model_name="theory",
            config=settings,
            rows=rows,
            notes=[
                "Exact errors and losses are by enumeration in fp64, over the last bit and the number of ones.",
                "Trained: Adam on sampled strings of length 10, every prefix predicted (Eq. 8); the interval is "
                "from the best to the worst seed.",
                "The bounds are our own constants for theorem 2 (`docs/explanation/theory.md`); "
                "the paper states an order.",
            ],
        )
        folder.write_results(results)
        return results


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
            figures=[growth_picture(results)],
            notes=results.notes,
        )
    ]


def growth_picture(results: Results) -> Picture:
    """Error by test length for each task: exact, bounded, and measured on trained models."""
    styles = {PRINTED: 1, CORRECTED: 6, RANK_ONE: 0, FULL: 2, TRAINED[1]: 3, TRAINED[2]: 5}
    by_task = {task: [_curve(results, task, arm, style) for arm, style in styles.items()] for task in TASKS}
    legend = [*by_task[TASKS[0]], Curve(label=CONSTANT, x=(), y=())]
    with drawn(height=3.0, panels=(1, 3), legend=legend) as (figure, axes):
        for axis, (task, curves) in zip(axes[0], by_task.items(), strict=True):
            axis.axvspan(1, LONGEST, color="#E69F00", alpha=0.13, linewidth=0)
            bounds = [_curve(results, task, arm, 4) for arm in (LOWER, UPPER)]
            axis.fill_between(bounds[0].x, bounds[0].y, bounds[1].y, color="#000000", alpha=0.07, linewidth=0)
            for curve in curves:
                draw_curves(axis, [curve])
                axis.lines[-1].set_linestyle("--" if curve.label == PRINTED else "-")
            constant = _curve(results, task, CONSTANT, 0)
            axis.plot(constant.x, constant.y, color="#777777", linestyle="--", linewidth=1.3, label=CONSTANT)
            axis.set_yscale("symlog", linthresh=1e-2 if task == "mean" else 1)
            axis.set_ylim(bottom=0)
            axis.set_title(task)
            axis.set_xlabel("test length (bits)")
        axes[0][0].set_ylabel("mean squared error")
        legend_below(figure, axes[0][0])
        return picture(
            figure,
            name="theory-growth",
            title="Error of linear attention by test length",
            alt="Error by test length for length, sum and mean: quadratic growth for the first two, none for mean.",
            caption="Grey: between the lower and the upper bound of theorem 2 with constants, for the largest entry "
            "of all tables drawn. Dashed grey: the best constant. Shaded: training lengths. The printed curve for "
            "sum is twice the error of the paper's own table.",
        )


def _rows(task: str, scale: Scale) -> Iterator[Row]:
    lengths = range(1, scale.test_length + 1)
    rank_one, full = theorem2.rank_one_minimum(task, LONGEST), theorem2.full_minimum(task, LONGEST)
    exact = {CORRECTED: theorem2.ansatz(task, LONGEST), RANK_ONE: rank_one.table, FULL: full.table}
    trained = {
        arm: train_tables(task, LONGEST, seeds=range(scale.seeds), rank=rank, steps=scale.steps)
        for rank, arm in TRAINED.items()
    }
    for arm, table in exact.items():
        yield _row(task, "train_loss", theorem2.objective(task, table, LONGEST), arm=arm)
    for length in lengths:
        errors = {
            PRINTED: theorem2.printed_error(task, LONGEST, length),
            CORRECTED: theorem2.corrected_error(task, LONGEST, length),
            RANK_ONE: theorem2.error(task, rank_one.table, length),
            FULL: theorem2.error(task, full.table, length),
        }
        for arm, error in errors.items():
            yield _row(task, "mse", error, arm=arm, length=length)
    # One band for every table that is drawn: no prediction lies outside of [-A, A].
    tables = [torch.tensor(list(exact.values()), dtype=torch.float64), *trained.values()]
    largest = torch.cat(tables).abs().max().item()
    for length in lengths:
        lower, upper = theorem2.growth_bounds(task, largest, length)
        constant, _ = constant_error(BIT_TASKS[task], IDENTITY, train_length=LONGEST, length=length)
        for arm, error in ((LOWER, lower), (UPPER, upper), (CONSTANT, constant)):
            yield _row(task, "mse", error, arm=arm, length=length)
    for arm, stack in trained.items():
        losses = [theorem2.objective(task, as_table(table), LONGEST) for table in stack]
        yield _row(task, "train_loss", spread(losses), arm=arm)
        errors = measured_errors(task, stack, lengths, samples=scale.samples)
        for length, by_seed in zip(lengths, errors.T.tolist(), strict=True):
            yield _row(task, "mse", spread(by_seed), arm=arm, length=length)


def _row(task: str, metric: str, value: float | Spread, **about: Any) -> Row:
    numbers: dict[str, Any] = value.plain if isinstance(value, Spread) else {"value": value}
    return Row(model=MODEL, task=task, metric=metric, unit=ORIGINAL, **numbers, **about)


def _curve(results: Results, task: str, arm: str, style: int) -> Curve:
    rows: Sequence[Row] = results.select(task=task, arm=arm, metric="mse")
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
    arms = (PRINTED, CORRECTED, RANK_ONE, FULL, *TRAINED.values(), CONSTANT, LOWER, UPPER)
    rows = []
    for task, arm in product(TASKS, arms):
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


def part(**options: Any) -> Part:
    """Theorem 2 as a part of a study, with other fields of `Part` where given."""
    return Part(run=run_theorem2, sections=sections, scales=SCALES, **options)


THEOREM2 = Study(
    title="Theorem 2: does the error grow as claimed?", parts=(part(),), takes=("seeds", "steps")
)
