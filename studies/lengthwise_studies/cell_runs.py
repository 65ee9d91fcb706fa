"""Grids of cells: each cell is trained and tested once, and an interrupted run continues with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lengthwise.errors import Interrupted
from lengthwise.report.html import Section
from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise_studies.claims import Claim
from lengthwise_studies.fan_out import processes_for, side_by_side
from lengthwise_studies.skeleton import Part

MODEL = "small Transformer"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The cells of a study, and what its page shows of them.

    Args:
        kind: of the results.
        scale: what a run records of its size, a `CellScale`.
        outcome: what `work` returns, a dataclass of plain numbers, with `seconds` of training and testing.
        cells: at a scale, in the order of the results; the `key` of a cell tells it from all others.
        work: trains and tests a cell at a scale, called with `scale` by name.
        rows: of the cells that are finished.
        notes: at a scale: how to read the numbers.
        page: the sections that show the outcomes at a scale; the first one gets the notes.
        claims: what is judged at a scale.
    """

    kind: str
    scale: type
    outcome: type
    cells: Callable[[Any], Sequence[Any]]
    work: Callable[..., Any]
    rows: Callable[[Any], Iterable[Row]]
    notes: Callable[[Any], list[str]]
    page: Callable[[Any, Any], list[Section]]
    claims: Callable[[Any], Iterable[Claim]] = lambda scale: ()

    def part(self, scales: Mapping[str, Any], **where: Any) -> Part:
        """As a part of a study."""
        return Part(
            run=self.run,
            sections=self.sections,
            scales=scales,
            cells=lambda scale: (self.cells(scale), self.work),
            claims=self.claims,
            **where,
        )

    def run(self, out: Path, scale: Any, *, resume: bool = False, overwrite: bool = False) -> Results:
        """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

        Raises:
            UsageError: see `RunFolder`.
            Interrupted: Ctrl-C. Finished cells stay, and `partial` has their rows.
        """
        cells = self.cells(scale)
        settings = {"scale": asdict(scale), "cells": [cell.key for cell in cells]}
        with RunFolder(out, kind=self.kind, config=settings, resume=resume, overwrite=overwrite) as folder:

            def results(*, partial: bool) -> Results:
                outcomes = self.finished(folder.samples, scale)
                seconds = sum(one.seconds for one in outcomes.values())
                found = Results(
                    kind=self.kind,
                    model_name=self.kind,
                    config=settings,
                    rows=list(self.rows(outcomes)),
                    notes=self.notes(scale),
                    partial=partial,
                    provenance={"seconds_of_training_and_testing": round(seconds, 1)},
                )
                folder.write_results(found)
                return found

            missing = [cell for cell in cells if cell.key not in folder.samples]
            try:
                side_by_side(
                    partial(self.work, scale=scale),
                    missing,
                    lambda cell, outcome: folder.samples.append(cell.key, asdict(outcome)),
                    processes=processes_for(scale.steps, len(missing)),
                    what="cells",
                    before=len(cells) - len(missing),
                )
            except Interrupted as stop:
                stop.partial = results(partial=True)
                raise
            return folder.finished or results(partial=False)

    def finished(self, log: SampleLog, scale: Any) -> dict[Any, Any]:
        """The outcomes of the cells that the log holds, in the order of `cells`."""
        return {cell: self.outcome(**log[cell.key]) for cell in self.cells(scale) if cell.key in log}

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """The page of a run folder."""
        plain = results.config["scale"].items()
        # JSON has lists where the scale has tuples.
        scale = self.scale(**{name: tuple(one) if isinstance(one, list) else one for name, one in plain})
        first, *others = self.page(scale, self.finished(SampleLog(folder / "samples.jsonl"), scale))
        return [replace(first, notes=results.notes), *others]
