"""The page of a synthetic study: the paper's claims against our numbers, then panel by panel."""

from __future__ import annotations

from pathlib import Path

from lengthwise.files import atomic_write_text
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Table, to_markdown
from lengthwise.results import Results
from lengthwise.studies.produced import Produced
from lengthwise.studies.synthetic.alignment import disagreement_table
from lengthwise.studies.synthetic.claims import claims_table
from lengthwise.studies.synthetic.figures import Figure, Panel, cells_of
from lengthwise.studies.synthetic.pictures import label_of, panel_pictures
from lengthwise.studies.synthetic.rows import at_length, beyond, most_clamped, spread, text, within
from lengthwise.studies.synthetic.run import Outcomes, baselines, run_cells
from lengthwise.studies.synthetic.theory import run_theory, theory_sections
from lengthwise.synthetic.cells import Scale

LEAD = (
    "Does what a small Transformer learns on strings of up to ten bits hold on longer ones, and is it the support "
    "of the output distribution that decides? Section 3 of the paper, run again.",
    "Errors are in original units unless said otherwise: in units of a compressing f every error looks small.",
)


def produce_figure(
    figure: Figure, scale: Scale, out: Path, *, resume: bool = False, overwrite: bool = False
) -> Produced:
    """Run a figure in `out` (or go on with it), and write `report.html`, and its pictures and tables to `figures/`.

    Raises:
        UsageError: see `run_cells`.
        Interrupted: Ctrl-C; finished cells stay.
    """
    sections: list[Section] = []
    tables: list[Table] = []
    provenance = {}
    if figure.panels:
        results, outcomes = run_cells(
            figure.name, cells_of(figure), scale, out, resume=resume, overwrite=overwrite
        )
        claims = claims_table(outcomes, {panel.name for panel in figure.panels})
        judged = [claims] if claims is not None else []
        tables += judged
        title = "The paper's claims" if judged else "What was run"
        sections.append(Section(title=title, tables=judged, notes=results.notes))
        panels = [panel_section(panel, outcomes) for panel in figure.panels]
        tables += [table for section in panels for table in section.tables]
        sections += panels
        provenance["Where it comes from"] = _provenance(results)
    if figure.name in ("theory", "all"):
        folder = out if figure.name == "theory" else out / "parts" / "theory"
        begun = (folder / "config.yaml").exists()
        results = run_theory(
            folder, scale, resume=resume or (begun and folder != out), overwrite=overwrite and folder == out
        )
        theory = theory_sections(results)
        tables += [table for section in theory for table in section.tables]
        sections += theory
        provenance["Where the theory's numbers come from"] = _provenance(results)
    for section in sections:
        for picture in section.figures:
            atomic_write_text(out / "figures" / f"{picture.name}.svg", picture.svg + "\n")
    atomic_write_text(out / "figures" / "tables.md", "\n".join(map(to_markdown, tables)))
    page = out / "report.html"
    title = f"Synthetic studies: {figure.description}"
    atomic_write_text(page, render_page(title, LEAD, sections, provenance))
    return Produced(page, tables)


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


def _provenance(results: Results) -> dict:
    return {"settings": results.config, **results.provenance}
