"""Proposition 4.4, as we read it, against parity with scratchpad and given ids."""

from __future__ import annotations

from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise_studies.sparsity import coupling_cells
from lengthwise_studies.sparsity.bounds import coupled_bound
from lengthwise_studies.sparsity.coupled_tasks import COUPLED_TASKS
from lengthwise_studies.sparsity.shares import finished, read_scale, run_grid, share, wrong

KIND = "sparsity-bounds-coupled"
COUPLED = coupling_cells.Cell(task="parity", ids="coupled")


def run_coupled(out: Path, scale: coupling_cells.Scale, *, resume: bool, overwrite: bool) -> Results:
    """Parity with scratchpad and given ids."""
    return run_grid(
        KIND,
        [COUPLED],
        coupling_cells.check,
        coupling_cells.run_cell,
        coupling_cells.cell_rows,
        coupling_cells.notes,
        out,
        scale,
        resume=resume,
        overwrite=overwrite,
    )


def coupled_sections(results: Results, folder: Path) -> list[Section]:
    """Proposition 4.4: the bound in ids, and the error of a response, by length."""
    scale = read_scale(coupling_cells.Scale, results)
    [(cell, outcome)] = finished(SampleLog(folder / "samples.jsonl"), [COUPLED]).items()
    task, lengths = COUPLED_TASKS[cell.task], coupling_cells.lengths_of(cell, scale)
    tested = {
        length: share(outcome, coupling_cells.place(coupling_cells.TOKENS, length)) for length in lengths
    }
    delta = wrong(tested[lengths[0]])
    rows = []
    for length, one in tested.items():
        bound = coupled_bound(delta, train_ids=task.ids(lengths[0]), test_ids=task.ids(length))
        rows.append([length, task.ids(length), f"{1 - one.value:.3f}", f"{delta:.2g}", f"{bound:.2g}"])
    return [
        Section(
            title="Proposition 4.4 against parity with scratchpad",
            paragraphs=[
                "In the order of tokens what decides a token of the response lies ever further back; in coupled ids "
                "it is next to it. The theorem then applies to ids. The proposition's own text was not found; this "
                "reading is ours, with etas of 1."
            ],
            tables=[
                Table(
                    columns=["length", "ids", "error of a response", "delta (ours)", "bound in ids"],
                    rows=rows,
                    caption="Parity with coupled ids; a bound below 1 says something",
                )
            ],
            notes=results.notes,
        )
    ]
