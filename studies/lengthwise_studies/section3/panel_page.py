"""The pages of section 3's figures: the paper's claims against our numbers, then panel by panel."""

from __future__ import annotations

from functools import partial

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies import theorem2_check
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, Scale
from lengthwise_studies.section3.claims import section3_claims_table
from lengthwise_studies.section3.grid import (
    Outcomes,
    at_length,
    best_constant_errors,
    beyond,
    grid_of,
    spread,
    two_digits,
    within,
)
from lengthwise_studies.section3.number_alignment import aligned_length_error, right_disagreements
from lengthwise_studies.section3.panel_pictures import panel_pictures
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
    label_of,
)
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic.reparameterization import reparameterization
from lengthwise_studies.synthetic.tasks import bit_task

LEAD = (
    "Does what a small Transformer learns on strings of up to ten bits hold on longer ones, and does the support of "
    "the output distribution decide it? Section 3 of the paper, run again.",
    "Errors are in original units unless said otherwise: in units of a compressing f every error looks small.",
)


def page(panels: tuple[Panel, ...], _: Scale, outcomes: Outcomes) -> list[Section]:
    """The claims that the run can decide; then of every panel what the paper says, its numbers and pictures."""
    claims = section3_claims_table(outcomes, {panel.name for panel in panels})
    title = "The paper's claims" if claims.rows else "What was run"
    sections = [Section(title=title, tables=[claims] if claims.rows else [])]
    for panel in panels:
        tables = [panel_table(panel, outcomes)]
        if panel.varies == "alignment":
            tables.append(disagreement_table(panel, outcomes))
        sections.append(
            Section(
                title=f"{panel.name}. {panel.title}",
                paragraphs=[f"The paper: {panel.claim}", *([panel.remark] if panel.remark else [])],
                tables=tables,
                figures=panel_pictures(panel, outcomes),
            )
        )
    return sections


def panel_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for each curve of a panel: how well it fits, and how it does beyond the training length."""
    longest = max((outcome.lengths[-1] for outcome in outcomes.values()), default=0)
    shown = sorted({min(20, longest), min(35, longest), longest})
    rows = []
    for cell in panel.cells:
        if cell not in outcomes:
            continue
        outcome = outcomes[cell]
        [constant] = best_constant_errors(cell, outcome.lengths[-1:])
        rows.append(
            [
                label_of(cell, panel.varies),
                cell.optimizer,
                f"{outcome.rate:g}",
                spread(outcome.train_loss).text,
                spread(within(cell, outcome)).text,
                *(at_length(outcome, length).text for length in shown),
                spread(beyond(cell, outcome)).text,
                f"{constant:.4g}",
                _most_clamped(cell, outcome),
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


def _most_clamped(cell: Cell, outcome: Outcome) -> str:
    """The largest share of clamped predictions over seeds and lengths beyond training, for an f.

    Within it, an output a hair outside of the image of f (at length 1) is clamped without consequence.
    """
    first = sum(length <= cell.train_length for length in outcome.lengths)
    shares = [share for seed in outcome.clamped for share in seed[first:]]
    return f"{max(shares):.0%}" if shares and cell.function != "identity" else ""


def disagreement_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for the right answers, and one for each curve: both readings at training lengths."""
    plain = panel.cells[0]
    task = bit_task(plain.task)
    function = reparameterization(plain.function, task, shift=plain.shift)
    right = right_disagreements(task, function, longest=plain.train_length)
    rows = [["the right answers", *(two_digits(right[name]) for name in ALIGNMENTS)]]
    for cell in panel.cells:
        if cell in outcomes:
            apart = [spread(outcomes[cell].disagreement[name]).text for name in ALIGNMENTS]
            rows.append([label_of(cell, panel.varies), *apart])
    costs = [f"{aligned_length_error(at, longest=plain.train_length):.3g} at {at:g}" for at in WEIGHTS]
    cost = (
        "Under alignment by string the best model, free to predict any number for each length, has a squared "
        f"error of {', '.join(costs)} in training range."
    )
    return Table(
        columns=["curve", *(f"disagreement by {name}" for name in ALIGNMENTS)],
        rows=rows,
        caption=f"{panel.name}: predictions from strings of training length and from their ends, median over seeds "
        "[smallest, largest]",
        notes=[cost] if plain.task == "length" else [],
    )


def _study(name: str, title: str, panels: tuple[Panel, ...], *others: Part, scales=SCALES) -> Study:
    part = grid_of(name, cells_of(panels), partial(page, panels)).part(scales)
    title = f"Synthetic studies: {title}"
    return Study(title=title, lead=LEAD, parts=(part, *others), takes=("seeds", "steps"))


FIGURE1 = _study("figure1", "figure 1, mean, length and reparameterized length", FIGURE1_PANELS)
FIGURE3 = _study("figure3", "figure 3, sum and length by training length", FIGURE3_PANELS)
FIGURE4 = _study("figure4", "figure 4, sum by encoding and f", FIGURE4_PANELS)
FIGURE5 = _study("figure5", "figure 5, mean of bits with a uniform number of ones", FIGURE5_PANELS)
SECTION3 = _study(
    # The kind of its results is that of earlier versions.
    "all",
    "all figures and theorem 2",
    FIGURE1_PANELS + FIGURE3_PANELS + FIGURE4_PANELS + FIGURE5_PANELS,
    theorem2_check.part(folder="parts/theory", heading="Where theorem 2's numbers come from"),
)
ALIGNMENT = _study(
    "alignment", "long-short alignment of mean, length and sum", ALIGNMENT_PANELS, scales=ALIGNMENT_SCALES
)
