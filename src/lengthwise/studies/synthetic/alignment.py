"""What long-short alignment did to the disagreement that it lowers, beside what right answers would pay."""

from __future__ import annotations

from lengthwise.report.tables import Table
from lengthwise.studies.synthetic.figures import ALIGNMENTS, WEIGHTS, Panel
from lengthwise.studies.synthetic.pictures import label_of
from lengthwise.studies.synthetic.rows import spread, text, two_digits
from lengthwise.studies.synthetic.run import Outcomes
from lengthwise.synthetic.alignment import aligned_length_error, right_disagreements
from lengthwise.synthetic.cells import Cell
from lengthwise.synthetic.reparameterization import reparameterization
from lengthwise.synthetic.tasks import bit_task


def disagreement_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for the right answers, and one for each curve: both readings at training lengths."""
    plain = panel.cells[0]
    task = bit_task(plain.task)
    right = right_disagreements(
        task, reparameterization(plain.function, task, shift=plain.shift), longest=plain.train_length
    )
    rows = [["the right answers", *(two_digits(right[name]) for name in ALIGNMENTS)]]
    rows += [
        [
            label_of(cell, panel.varies),
            *(text(spread(outcomes[cell].disagreement[name])) for name in ALIGNMENTS),
        ]
        for cell in panel.cells
        if cell in outcomes
    ]
    return Table(
        columns=["curve", *(f"disagreement by {name}" for name in ALIGNMENTS)],
        rows=rows,
        caption=f"{panel.name}: predictions from strings of training length and from their ends, median over seeds "
        "[smallest, largest]",
        notes=_cost(plain) if plain.task == "length" else [],
    )


def _cost(plain: Cell) -> list[str]:
    """What alignment by string takes from a model that could say any number for any length."""
    costs = (
        f"{aligned_length_error(weight, longest=plain.train_length):.3g} at {weight:g}" for weight in WEIGHTS
    )
    return [
        "Under alignment by string the best a model could do, free to say any number for each length, is a squared "
        f"error of {', '.join(costs)} in training range."
    ]
