"""The pages of section 3's figures: the paper's claims against our numbers, then panel by panel."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise_studies import theorem2_check
from lengthwise_studies.section3.cells import SCALES, Cell
from lengthwise_studies.section3.claims import section3_claims_table
from lengthwise_studies.section3.grid import (
    Outcomes,
    at_length,
    baselines,
    beyond,
    finished_outcomes,
    most_clamped,
    run_cells,
    spread,
    text,
    two_digits,
    within,
)
from lengthwise_studies.section3.number_alignment import aligned_length_error, right_disagreements
from lengthwise_studies.section3.panel_pictures import label_of, panel_pictures
from lengthwise_studies.section3.panels import (
    ALIGNMENT_PANELS,
    ALIGNMENT_SCALES,
    ALIGNMENTS,
    FIGURE1_PANELS,
    FIGURE3_PANELS,
    FIGURE4_PANELS,
    FIGURE5_PANELS,
    WEIGHTS,
    Panel,
    cells_of,
)
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic.reparameterization import reparameterization
from lengthwise_studies.synthetic.tasks import bit_task

LEAD = (
    "Does what a small Transformer learns on strings of up to ten bits hold on longer ones, and does the support of "
    "the output distribution decide it? Section 3 of the paper, run again.",
    "Errors are in original units unless said otherwise: in units of a compressing f every error looks small.",
)


def _part(name: str, panels: tuple[Panel, ...], scales=SCALES) -> Part:
    return Part(
        run=partial(run_cells, name, cells_of(panels)), sections=partial(sections, panels), scales=scales
    )


def sections(panels: tuple[Panel, ...], results: Results, folder: Path) -> list[Section]:
    """The claims that the run can decide, then every panel."""
    outcomes = finished_outcomes(SampleLog(folder / "samples.jsonl"), cells_of(panels))
    claims = section3_claims_table(outcomes, {panel.name for panel in panels})
    judged = [claims] if claims is not None else []
    title = "The paper's claims" if judged else "What was run"
    return [
        Section(title=title, tables=judged, notes=results.notes),
        *(panel_section(panel, outcomes) for panel in panels),
    ]


def panel_section(panel: Panel, outcomes: Outcomes) -> Section:
    """One panel: what the paper says, every curve in numbers, the pictures."""
    return Section(
        title=f"{panel.name}. {panel.title}",
        paragraphs=[f"The paper: {panel.claim}", *([panel.remark] if panel.remark else [])],
        tables=[
            panel_table(panel, outcomes),
            *([disagreement_table(panel, outcomes)] if panel.varies == "alignment" else []),
        ],
        figures=panel_pictures(panel, outcomes),
    )


def panel_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for each curve of a panel: how well it fits, and how it does beyond the training length."""
    rows = []
    longest = max((outcome.lengths[-1] for outcome in outcomes.values()), default=0)
    shown = sorted({min(20, longest), min(35, longest), longest})
    for cell in panel.cells:
        if cell not in outcomes:
            continue
        outcome = outcomes[cell]
        constant, _, _ = baselines(cell, outcome.lengths)
        clamped = most_clamped(cell, outcome)
        rows.append(
            [
                label_of(cell, panel.varies),
                cell.optimizer,
                f"{outcome.rate:g}",
                text(spread(outcome.train_loss)),
                text(spread(within(cell, outcome))),
                *(text(at_length(outcome, length)) for length in shown),
                text(spread(beyond(cell, outcome))),
                f"{constant[-1]:.4g}",
                f"{clamped:.0%}" if clamped is not None and cell.function != "identity" else "",
            ]
        )
    return Table(
        columns=[
            "curve",
            "optimizer",
            "rate kept",
            "training loss (units of f)",
            "test error in training range",
            *(f"at {length}" for length in shown),
            "beyond training",
            f"best constant at {longest}",
            "clamped beyond training, at most",
        ],
        rows=rows,
        caption=f"{panel.name}: squared error in original units, median over seeds [best, worst]",
    )


def disagreement_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for the right answers, and one for each curve: both readings at training lengths."""
    plain = panel.cells[0]
    task = bit_task(plain.task)
    function = reparameterization(plain.function, task, shift=plain.shift)
    right = right_disagreements(task, function, longest=plain.train_length)
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
    """The least error of a model that could predict any number for any length, under alignment by string."""
    costs = (
        f"{aligned_length_error(weight, longest=plain.train_length):.3g} at {weight:g}" for weight in WEIGHTS
    )
    return [
        "Under alignment by string the best model, free to predict any number for each length, has a squared "
        f"error of {', '.join(costs)} in training range."
    ]


def _study(part: Part, description: str, *others: Part) -> Study:
    return Study(
        title=f"Synthetic studies: {description}", lead=LEAD, parts=(part, *others), takes=("seeds", "steps")
    )


FIGURE1 = _study(_part("figure1", FIGURE1_PANELS), "figure 1, mean, length and reparameterized length")
FIGURE3 = _study(_part("figure3", FIGURE3_PANELS), "figure 3, sum and length by training length")
FIGURE4 = _study(_part("figure4", FIGURE4_PANELS), "figure 4, sum by encoding and f")
FIGURE5 = _study(_part("figure5", FIGURE5_PANELS), "figure 5, mean of bits with a uniform number of ones")
SECTION3 = _study(
    # The kind of its results is that of earlier versions.
    _part("all", FIGURE1_PANELS + FIGURE3_PANELS + FIGURE4_PANELS + FIGURE5_PANELS),
    "all figures and theorem 2",
    theorem2_check.part(folder="parts/theory", heading="Where theorem 2's numbers come from"),
)
ALIGNMENT = _study(
    _part("alignment", ALIGNMENT_PANELS, ALIGNMENT_SCALES),
    "long-short alignment of mean, length and sum",
)
