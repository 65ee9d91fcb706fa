"""Cells in a run folder: each is trained and tested once, and an interrupted run continues with the others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise_studies.side_by_side import Steps, run_missing

MODEL = "small Transformer"


class AnyCell(Hashable, Protocol):
    """One configuration."""

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        ...


class AnyOutcome(Protocol):
    """What a cell gave: a dataclass of plain numbers, which JSON keeps whole."""

    @property
    def seconds(self) -> float:
        """Of training and testing."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The record of a sample log."""
        ...


C = TypeVar("C", bound=AnyCell)
Out = TypeVar("Out", bound=AnyOutcome)


def run_cells(
    kind: str,
    cells: Sequence[C],
    work: Callable[..., Out],
    outcome: type[Out],
    rows: Callable[[Mapping[C, Out]], list[Row]],
    notes: list[str],
    out: Path | str,
    scale: Steps,
    *,
    name: str | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Results:
    """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

    Args:
        kind: of the results.
        cells: in the order of the results.
        work: trains and tests a cell at the scale, called with `scale` by name.
        outcome: what `work` returns, made again from its record.
        rows: of the cells that are finished.
        notes: how to read the numbers.
        out: run folder.
        scale: how large the study is, a dataclass.
        name: of the model in the results; default: `kind`.
        resume: continue an unfinished run.
        overwrite: replace an earlier one.

    Raises:
        UsageError: see `RunFolder`.
        Interrupted: Ctrl-C. Finished cells stay, and `partial` has their rows.
    """
    settings = {"scale": asdict(scale), "cells": [cell.key for cell in cells]}  # type: ignore[call-overload]
    with RunFolder(out, kind=kind, config=settings, resume=resume, overwrite=overwrite) as folder:

        def results(*, partial: bool) -> Results:
            outcomes = finished_cells(folder.samples, cells, outcome)
            seconds = sum(one.seconds for one in outcomes.values())
            found = Results(
                kind=kind,
                model_name=name or kind,
                config=settings,
                rows=rows(outcomes),
                notes=notes,
                partial=partial,
                provenance={"seconds_of_training_and_testing": round(seconds, 1)},
            )
            folder.write_results(found)
            return found

        run_missing(
            {cell.key: cell for cell in cells},
            partial(work, scale=scale),
            folder.samples,
            scale=scale,
            what="cells",
            so_far=lambda: results(partial=True),
        )
        return folder.finished or results(partial=False)


def finished_cells(log: SampleLog, cells: Iterable[C], outcome: type[Out]) -> dict[C, Out]:
    """The outcomes of the cells that the log holds, in the order of `cells`."""
    return {cell: outcome(**log[cell.key]) for cell in cells if cell.key in log}
