"""What long-short alignment did to the disagreement that it lowers, beside what right answers would pay."""

from __future__ import annotations

from lengthwise.report.tables import Table
from lengthwise.studies.synthetic.figures import ALIGNMENTS, Panel
from lengthwise.studies.synthetic.pictures import label_of
from lengthwise.studies.synthetic.rows import spread, text
from lengthwise.studies.synthetic.run import Outcomes
from lengthwise.synthetic.alignment import right_disagreements
from lengthwise.synthetic.reparameterization import reparameterization
from lengthwise.synthetic.tasks import bit_task


def disagreement_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for the right answers, and one for each curve: both readings at training lengths."""
    plain = panel.cells[0]
    task = bit_task(plain.task)
    right = right_disagreements(
        task, reparameterization(plain.function, task, shift=plain.shift), longest=plain.train_length
    )
    rows = [["the right answers", *(f"{right[name]:.2g}" for name in ALIGNMENTS)]]
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
    )
