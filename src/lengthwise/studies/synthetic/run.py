"""Running the cells of a figure in a run folder, resumable after each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path

from lengthwise.errors import Interrupted
from lengthwise.progress import progress
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.studies.synthetic.processes import processes_for, side_by_side
from lengthwise.studies.synthetic.rows import baseline_rows, cell_rows, coverage
from lengthwise.synthetic.baselines import constant_error, length_alone_error
from lengthwise.synthetic.cells import Cell, Scale
from lengthwise.synthetic.reparameterization import reparameterization
from lengthwise.synthetic.sweep import CEILING, Outcome, check, run_cell
from lengthwise.synthetic.tasks import bit_task

Outcomes = Mapping[Cell, Outcome]


def run_cells(
    name: str,
    cells: Sequence[Cell],
    scale: Scale,
    out: Path | str,
    *,
    resume: bool = False,
    overwrite: bool = False,
) -> tuple[Results, Outcomes]:
    """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

    Raises:
        UsageError: a grid with no cells, or one that cannot run (`sweep.check`); see `RunFolder`.
        Interrupted: Ctrl-C; finished cells stay, and `partial` has their rows.
    """
    check(cells, scale)
    settings = {"scale": asdict(scale), "cells": [cell.key for cell in cells]}
    with RunFolder(
        out, kind=f"synth-{name}", config=settings, writes=("parts",), resume=resume, overwrite=overwrite
    ) as folder:
        try:
            missing = [cell for cell in cells if cell.key not in folder.samples]
            done = len(cells) - len(missing)
            with closing(
                side_by_side(
                    partial(run_cell, scale=scale), missing, processes=processes_for(scale, len(missing))
                )
            ) as finished:
                for cell, outcome in progress(finished, what="cells", total=len(cells), initial=done):
                    folder.samples.append(cell.key, outcome.to_dict())
        except KeyboardInterrupt as stop:
            outcomes = _finished(cells, folder)
            so_far = _results(name, settings, scale, outcomes, partial=True)
            folder.write_results(so_far)
            raise Interrupted(
                f"interrupted after {len(outcomes)} of {len(cells)} cells",
                partial=so_far,
                fix="the same command with --resume goes on",
            ) from stop
        outcomes = _finished(cells, folder)
        if folder.finished:
            return folder.read_results(), outcomes
        results = _results(name, settings, scale, outcomes, partial=False)
        folder.write_results(results)
        return results, outcomes


def baselines(cell: Cell, lengths: Sequence[int]) -> tuple[list[float], list[float], list[float]]:
    """Errors by length of the best constant (original units, units of f) and of knowing the length alone."""
    task = bit_task(cell.task)
    function = reparameterization(cell.function, task, shift=cell.shift)
    both = [
        constant_error(task, function, train_length=cell.train_length, length=length) for length in lengths
    ]
    alone = [length_alone_error(task, length=length) for length in lengths]
    return [original for original, _ in both], [transformed for _, transformed in both], alone


def _finished(cells: Sequence[Cell], folder: RunFolder) -> dict[Cell, Outcome]:
    return {cell: Outcome(**folder.samples[cell.key]) for cell in cells if cell.key in folder.samples}


def _results(name: str, settings: dict, scale: Scale, outcomes: Outcomes, *, partial: bool) -> Results:
    rows: list[Row] = []
    drawn: set[tuple[str, str, int, int]] = set()
    for cell, outcome in outcomes.items():
        rows += cell_rows(cell, outcome)
        # A trivial predictor has no encoding and no optimizer.
        trivial = (cell.task, cell.function, cell.shift, cell.train_length)
        if trivial not in drawn:
            drawn.add(trivial)
            constant, _, _ = baselines(cell, outcome.lengths)
            rows += baseline_rows(cell, outcome.lengths, constant, "best constant")
    seconds = sum(outcome.seconds for outcome in outcomes.values())
    return Results(
        kind=f"synth-{name}",
        model_name=name,
        config=settings,
        rows=rows,
        notes=notes(scale),
        partial=partial,
        provenance={"seconds_of_training_and_testing": round(seconds, 1)},
    )


def notes(scale: Scale) -> list[str]:
    """What a reader must know of every number."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads; {scale.steps} steps "
        f"(SGD: twice as many) of {scale.batch} fresh samples; {scale.seeds} seeds, which differ in initial "
        "weights and samples. The paper states neither depth, width nor seeds; it trains for 40,000 "
        "epochs of batch 256.",
        f"Values are medians over seeds; the interval is from the best to the worst seed, which covers the true "
        f"median with probability {coverage(scale.seeds):.0%} (not over documents).",
        f"Errors are over {scale.samples} strings at each length, the same for every model. BOS and EOS mark the "
        "ends of a string.",
        "SGD keeps the one of the paper's rates (5e-5, 1e-4, 5e-4) that fits the training data best; Adam has "
        "one rate.",
        "Error in original units: predictions are mapped back through the inverse of f. Outputs outside of the "
        f"image of [smallest outcome, {CEILING} times the longest test length] are clamped first, and counted.",
        "The best constant is the mean of f over the training distribution, mapped back: what a model "
        "that sees nothing would learn.",
    ]
