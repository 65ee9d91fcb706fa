"""The pages of section 3's figures: the paper's claims against our numbers, then panel by panel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lengthwise.report.drawing import COLORS, Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies import theorem2_check
from lengthwise_studies.cell_runs import Grid
from lengthwise_studies.claims import Claim, judge, verdict_table
from lengthwise_studies.section3 import grid
from lengthwise_studies.section3.cells import SCALES, Cell, Outcome, Scale, run_cell
from lengthwise_studies.section3.grid import Outcomes, at_length, mean_errors, spread
from lengthwise_studies.section3.panels import FIGURES, FITS, OPTIMIZERS, Panel
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.synthetic.reparameterization import length_alone_error

LEAD = (
    "Does what a small Transformer learns on strings of up to ten bits hold on longer ones, and does the support of "
    "the output distribution decide it? Section 3 of the paper, run again.",
    "Errors are in original units unless said otherwise: in units of a compressing f every error looks small.",
)


def page(panels: tuple[Panel, ...], scale: Scale, outcomes: Outcomes) -> list[Section]:
    """The claims that the run can decide; then the numbers and the pictures of every panel."""
    judged, panels = judge(claims_of(panels, scale), outcomes), run_at(scale, panels)
    claims = verdict_table(judged, ours="ours, median over seeds [best, worst]", notes=[FITS])
    title = "The paper's claims" if judged else "What was run"
    sections = [Section(title=title, tables=[claims] if judged else [])]
    for panel in panels:
        tables = [panel_table(panel, outcomes)]
        pictures = [panel_picture(panel, outcomes, optimizer) for optimizer in panel.optimizers]
        sections.append(Section(title=f"{panel.name}. {panel.title}", tables=tables, figures=pictures))
    return sections


def panel_table(panel: Panel, outcomes: Outcomes) -> Table:
    """One line for each curve of a panel: how well it fits, and how it does beyond the training length."""
    rows = []
    for cell, label in panel.cells.items():
        outcome = outcomes[cell]
        longest = outcome.lengths[-1]
        inside, beyond = mean_errors(cell, outcome)
        # In training range, an output a hair outside of the image of f (at length 1) is clamped without consequence.
        most = max((share for seed in outcome.clamped for share in seed[cell.train_length :]), default=0)
        clamped = "" if cell.function == "identity" else f"{most:.0%}"
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
                "clamped beyond training, at most": clamped,
            }
        )
    return Table(
        columns=list(rows[0]),
        rows=[list(row.values()) for row in rows],
        caption=f"{panel.name}: squared error in original units, median over seeds [best, worst]",
    )


def panel_picture(panel: Panel, outcomes: Outcomes, optimizer: str) -> Picture:
    """Test error by length in original units, and in units of f where f differs; training loss by step."""
    cells = {cell: label for cell, label in panel.cells.items() if cell.optimizer == optimizer}
    found = {label: outcomes[cell] for cell, label in cells.items()}
    lengths = next(iter(found.values())).lengths
    views = [("Test error", "original units", "mse"), ("Training loss", "units of f", "curve")]
    if panel.varies == "function":
        views.insert(1, ("The same in units of f", "units of f", "mse_transformed"))
    curves = {field: _curves(found, field) for *_, field in views}
    references = _references(list(cells), lengths)
    ends = (f"{label} {at_length(one, lengths[-1]).text}" for label, one in found.items())
    with drawn(height=3.3, panels=(1, len(views)), legend=[*curves["mse"], *references]) as (figure, axes):
        for axis, (title, unit, field) in zip(axes[0], views, strict=True):
            if field != "curve":
                for length in sorted({cell.train_length for cell in cells}):
                    axis.axvspan(1, length, color="#E69F00", alpha=0.13, linewidth=0)
            # One at a time: together, many curves would be moved aside, away from their seeds.
            for curve in curves[field]:
                draw_curves(axis, [curve])
            axis.set_yscale("log")
            across = "training step" if field == "curve" else "test length (bits)"
            axis.set(title=title, xlabel=across, ylabel=f"mean squared error, {unit}")
        for one, style in zip(references, ("--", ":", "-.", (0, (1, 3)), (0, (5, 5))), strict=False):
            axes[0][0].plot(one.x, one.y, color="#777777", linestyle=style, linewidth=1.3, label=one.label)
        if "mse_transformed" in curves:
            for color, cell in zip(COLORS, cells, strict=False):
                errors = cell.constant_errors(lengths, transformed=True)
                axes[0][1].plot(lengths, errors, color=color, linestyle="--", linewidth=0.8, alpha=0.45)
        legend_below(figure, axes[0][0])
        return picture(
            figure,
            name=f"panel-{panel.name}-{optimizer}",
            title=f"{panel.name}. {panel.title} ({OPTIMIZERS[optimizer]})",
            alt=f"Test error by length, and training loss by step. At the longest length: {'; '.join(ends)}.",
            caption="Every seed as a thin line, their median as a thick one, with a band from the best to the "
            "worst seed. Shaded: training lengths. Grey: predictors that need no model. In units of f curves cannot "
            "be compared: a compressing f makes every error small, also that of the best constant (thin, dashed).",
        )


def _curves(found: dict[str, Outcome], field: str) -> list[Curve]:
    """Each seed, faint, and their median with a band. Points at which a model diverged are left out."""
    curves = []
    for style, (label, outcome) in enumerate(found.items()):
        x, by_seed = outcome.steps if field == "curve" else outcome.lengths, getattr(outcome, field)
        for values in by_seed:
            seed = {at: value for at, value in zip(x, values, strict=True) if value is not None}
            curves.append(Curve(label=label, x=list(seed), y=list(seed.values()), style=style, faint=True))
        over = [(at, spread(values).plain) for at, *values in zip(x, *by_seed, strict=True)]
        over = [(at, one) for at, one in over if one["value"] is not None]
        y, low, high = ([one[name] for _, one in over] for name in ("value", "ci_low", "ci_high"))
        curves.append(Curve(label=label, x=[at for at, _ in over], y=y, low=low, high=high, style=style))
    return [curve for curve in curves if curve.x]


def _references(cells: Sequence[Cell], lengths: Sequence[int]) -> list[Curve]:
    """The best constant for each training length, and knowing the length alone where that is not exact."""
    plain = {cell.train_length: Cell(task=cell.task, train_length=cell.train_length) for cell in cells}
    references = {
        f"best constant of 1..{longest}": one.constant_errors(lengths) for longest, one in plain.items()
    }
    if len(plain) == 1:
        references = {"best constant": next(iter(references.values()))}
    alone = [length_alone_error(cells[0].of, length=length) for length in lengths]
    if max(alone) > 0:
        references["knowing the length alone"] = alone
    return [Curve(label=label, x=lengths, y=errors) for label, errors in references.items()]


def run_at(scale: Scale, panels: tuple[Panel, ...]) -> tuple[Panel, ...]:
    """The panels with the optimizers that are run at this scale; those without one are left out."""
    both = ((panel, tuple(one for one in panel.optimizers if one in scale.optimizers)) for panel in panels)
    return tuple(replace(panel, optimizers=optimizers) for panel, optimizers in both if optimizers)


def claims_of(panels: tuple[Panel, ...], scale: Scale) -> list[Claim]:
    """Those of the panels that are run at this scale."""
    return [claim for panel in run_at(scale, panels) for claim in panel.claims]


def cells_of(panels: tuple[Panel, ...], scale: Scale) -> list[Cell]:
    """Every cell once, whichever panels share it; those of the quick optimizer first."""
    cells = dict.fromkeys(cell for panel in run_at(scale, panels) for cell in panel.cells)
    return sorted(cells, key=lambda cell: list(OPTIMIZERS).index(cell.optimizer))


def grid_of(name: str, panels: tuple[Panel, ...]) -> Grid:
    """The cells of all panels."""
    return Grid(
        kind=f"synth-{name}",
        scale=Scale,
        outcome=Outcome,
        cells=partial(cells_of, panels),
        work=run_cell,
        rows=grid.rows,
        notes=grid.notes,
        page=partial(page, panels),
        claims=partial(claims_of, panels),
    )


def _study(name: str, title: str, panels: tuple[Panel, ...], *others: Part, scales=SCALES) -> Study:
    parts = (grid_of(name, panels).part(scales), *others)
    return Study(title=f"Synthetic studies: {title}", lead=LEAD, parts=parts, takes=("seeds", "steps"))


_PAPERS = SCALES | {
    # SGD for the paper's number of steps, with a smaller batch.
    "paper": Scale(seeds=5, steps=20_000, batch=16, test_length=50, samples=256, optimizers=("sgd",)),
}
FIGURE1 = _study(
    "figure1", "figure 1, mean, length and reparameterized length", FIGURES["figure1"], scales=_PAPERS
)
FIGURE3 = _study("figure3", "figure 3, sum and length by training length", FIGURES["figure3"])
FIGURE4 = _study("figure4", "figure 4, sum by encoding and f", FIGURES["figure4"], scales=_PAPERS)
FIGURE5 = _study(
    "figure5", "figure 5, mean of bits with a uniform number of ones", FIGURES["figure5"], scales=_PAPERS
)
SECTION3 = _study(
    # The kind of its results is that of earlier versions.
    "all",
    "all figures and theorem 2",
    tuple(panel for panels in FIGURES.values() for panel in panels),
    theorem2_check.part(folder="parts/theory", heading="Where theorem 2's numbers come from"),
)
