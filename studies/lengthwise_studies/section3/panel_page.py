"""The pages of section 3's figures: the paper's claims against our numbers, then panel by panel."""

from __future__ import annotations

from functools import partial
from itertools import chain

from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies import theorem2_check
from lengthwise_studies.cell_runs import Grid
from lengthwise_studies.claims import judge, verdict_table
from lengthwise_studies.section3 import grid
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, Scale, run_cell
from lengthwise_studies.section3.grid import Outcomes, at_length, mean_errors, spread, two_digits
from lengthwise_studies.section3.number_alignment import aligned_length_error, right_disagreements
from lengthwise_studies.section3.panel_pictures import panel_pictures
from lengthwise_studies.section3.panels import (
    ALIGNMENT_PANELS,
    ALIGNMENT_SCALES,
    ALIGNMENTS,
    FIGURES,
    FITS,
    OPTIMIZERS,
    WEIGHTS,
    Panel,
)
from lengthwise_studies.skeleton import Part, Study

LEAD = (
    "Does what a small Transformer learns on strings of up to ten bits hold on longer ones, and does the support of "
    "the output distribution decide it? Section 3 of the paper, run again.",
    "Errors are in original units unless said otherwise: in units of a compressing f every error looks small.",
)


def page(panels: tuple[Panel, ...], _: Scale, outcomes: Outcomes) -> list[Section]:
    """The claims that the run can decide; then the numbers and the pictures of every panel."""
    judged = judge((claim for panel in panels for claim in panel.claims), outcomes)
    claims = verdict_table(judged, ours="ours, median over seeds [best, worst]", notes=[FITS])
    sections = [
        Section(title="The paper's claims", tables=[claims]) if judged else Section(title="What was run")
    ]
    for panel in panels:
        aligned = [disagreement_table(panel, outcomes)] if panel.varies == "alignment" else []
        sections.append(
            Section(
                title=f"{panel.name}. {panel.title}",
                tables=[panel_table(panel, outcomes), *aligned],
                figures=panel_pictures(panel, outcomes),
            )
        )
    return sections


def panel_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for each curve of a panel: how well it fits, and how it does beyond the training length."""
    rows = []
    for cell, label in panel.cells.items():
        outcome = outcomes[cell]
        longest = outcome.lengths[-1]
        inside, beyond = mean_errors(cell, outcome)
        rows.append(
            {
                "curve": label,
                "optimizer": cell.optimizer,
                "rate kept": f"{outcome.rate:g}",
                "training loss (units of f)": spread(outcome.train_loss).text,
                "test error in training range": spread(inside).text,
                **{f"at {at}": at_length(outcome, at).text for at in (20, 35, longest) if at <= longest},
                "beyond training": spread(beyond).text,
                f"best constant at {longest}": f"{cell.constant_errors([longest])[0]:.4g}",
                "clamped beyond training, at most": _most_clamped(cell, outcome),
            }
        )
    return Table(
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        caption=f"{panel.name}: squared error in original units, median over seeds [best, worst]",
    )


def _most_clamped(cell: Cell, outcome: Outcome) -> str:
    """The largest share of clamped predictions over seeds and lengths beyond training, for an f.

    Within it, an output a hair outside of the image of f (at length 1) is clamped without consequence.
    """
    shares = [share for seed in outcome.clamped for share in seed[cell.train_length :]]
    return f"{max(shares):.0%}" if shares and cell.function != "identity" else ""


def disagreement_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for the right answers, and one for each curve: both readings at training lengths."""
    plain = next(iter(panel.cells))
    right = right_disagreements(plain.of, plain.f, longest=plain.train_length)
    rows = [["the right answers", *(two_digits(right[name]) for name in ALIGNMENTS)]]
    for cell, label in panel.cells.items():
        rows.append([label, *(spread(outcomes[cell].disagreement[name]).text for name in ALIGNMENTS)])
    notes = [f"Wrong by construction: the {plain.task} changes with the cut, so right answers cannot agree."]
    if plain.task == "mean":
        notes = [
            "The means of a string and of its end differ by chance, so even right answers disagree a little."
        ]
    if plain.task == "length":
        costs = [f"{aligned_length_error(at, longest=plain.train_length):.3g} at {at:g}" for at in WEIGHTS]
        notes.append(
            "Under alignment by string the best model, free to predict any number for each length, has a squared "
            f"error of {', '.join(costs)} in training range."
        )
    return Table(
        columns=["curve", *(f"disagreement by {name}" for name in ALIGNMENTS)],
        rows=rows,
        caption=f"{panel.name}: predictions from strings of training length and from their ends, median over seeds "
        "[smallest, largest]",
        notes=notes,
    )


def grid_of(name: str, panels: tuple[Panel, ...]) -> Grid:
    """Every cell once, whichever panels share it; those of the quick optimizer first."""
    cells = list(dict.fromkeys(cell for panel in panels for cell in panel.cells))
    cells.sort(key=lambda cell: list(OPTIMIZERS).index(cell.optimizer))
    return Grid(
        kind=f"synth-{name}",
        scale=Scale,
        outcome=Outcome,
        cells=lambda _: cells,
        work=run_cell,
        rows=grid.rows,
        notes=grid.notes,
        page=partial(page, panels),
    )


def _study(name: str, title: str, panels: tuple[Panel, ...], *others: Part, scales=SCALES) -> Study:
    parts = (grid_of(name, panels).part(scales), *others)
    return Study(title=f"Synthetic studies: {title}", lead=LEAD, parts=parts, takes=("seeds", "steps"))


FIGURE1, FIGURE3, FIGURE4, FIGURE5 = (
    _study(name, f"figure {name[-1]}, {title}", FIGURES[name])
    for name, title in (
        ("figure1", "mean, length and reparameterized length"),
        ("figure3", "sum and length by training length"),
        ("figure4", "sum by encoding and f"),
        ("figure5", "mean of bits with a uniform number of ones"),
    )
)
SECTION3 = _study(
    # The kind of its results is that of earlier versions.
    "all",
    "all figures and theorem 2",
    tuple(chain.from_iterable(FIGURES.values())),
    theorem2_check.part(folder="parts/theory", heading="Where theorem 2's numbers come from"),
)
ALIGNMENT = _study(
    "alignment", "long-short alignment of mean, length and sum", ALIGNMENT_PANELS, scales=ALIGNMENT_SCALES
)
