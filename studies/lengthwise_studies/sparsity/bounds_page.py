"""The bounds of the sparsity paper against the errors of trained models: when they say something, and when not.

delta, the risk of the best hypothesis at the training lengths, is not known. In its place we put the largest error of
the trained models at a training length and a tested k within training, with the upper end of its binomial interval
where no error was seen. All bounds are linear in delta and hold up to a constant that the paper does not give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise_studies.skeleton import Claim, Part, Study, Verdict, claims_table
from lengthwise_studies.sparsity import coupling_cells, parity_cells
from lengthwise_studies.sparsity.bounds import (
    improved_bound,
    needed_delta,
    proof_etas,
    says_something,
    theorem_bound,
)
from lengthwise_studies.sparsity.coupled_bounds import coupled_sections, run_coupled
from lengthwise_studies.sparsity.parity_cells import Cell, Scale, law_of, place
from lengthwise_studies.sparsity.shares import (
    Outcome,
    Share,
    finished,
    pooled,
    read_scale,
    run_grid,
    share,
    wrong,
)

KIND = "sparsity-bounds"
SCALES = {
    # L_local = L/4, the largest that the theorem allows. Up to four planted tokens are learned in 800 steps.
    name: replace(
        scale, train_ks=(4,), test_ks=(2, 4), local=scale.train_length // 4, steps=min(scale.steps, 800)
    )
    for name, scale in parity_cells.SCALES.items()
}


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What theory and models say of one cell at one test length."""

    cell: Cell
    length: int
    delta: float
    error: Share
    """Of labels; over tested k within training."""
    etas: tuple[float, float]
    theorem: float
    improved: float
    needed: tuple[float, float]
    """The delta that each of the two bounds demands to say something."""


def judged(scale: Scale, found: Mapping[Cell, Outcome]) -> list[Judged]:
    """Every cell at every length beyond training."""
    return [
        _judged(cell, outcome, scale, length)
        for cell, outcome in found.items()
        for length in scale.test_lengths
        if length > scale.train_length
    ]


def _judged(cell: Cell, outcome: Outcome, scale: Scale, length: int) -> Judged:
    ks = [k for k in scale.test_ks if k <= cell.k]
    ranges = [at for at in scale.test_lengths if at <= scale.train_length]
    delta = max(wrong(share(outcome, place(k, at))) for k in ks for at in ranges)
    # Sets of the largest k in training spread most, so its etas are the largest.
    etas = proof_etas(
        law_of(cell, scale).positions,
        train_length=scale.train_length,
        test_length=length,
        local=scale.local,
        k=cell.k,
    )

    def theorem(of: float) -> float:
        return theorem_bound(
            of, train_length=scale.train_length, test_length=length, eta_train=etas[0], eta_test=etas[1]
        )

    def improved(of: float) -> float:
        return improved_bound(
            of,
            train_length=scale.train_length,
            test_length=length,
            local=scale.local,
            eta_train=etas[0],
            eta_test=etas[1],
        )

    return Judged(
        cell=cell,
        length=length,
        delta=delta,
        error=pooled(outcome, [place(k, length) for k in ks]),
        etas=etas,
        theorem=theorem(delta),
        improved=improved(delta),
        needed=(needed_delta(theorem(1)), needed_delta(improved(1))),
    )


def _informative(bound: Callable[[Judged], float], numbers: list[Judged]) -> Verdict:
    telling = [one for one in numbers if says_something(bound(one))]
    ours = "; ".join(
        f"{one.cell.key}, length {one.length}: delta {one.delta:.2g}, bound {_bound_text(bound(one))}"
        for one in numbers
    )
    return ours, "vacuous" if not telling else f"says something at {len(telling)} of {len(numbers)}"


def _kept(bound: Callable[[Judged], float], numbers: list[Judged]) -> Verdict:
    broken = [one for one in numbers if 1 - one.error.high > bound(one)]
    ratios = [(1 - one.error.value) / bound(one) for one in numbers if 0 < bound(one) < math.inf]
    ours = f"largest error / bound: {max(ratios):.2g}" if ratios else "no finite bound"
    return ours, "holds" if not broken else f"needs a constant above 1 at {len(broken)} of {len(numbers)}"


def _needs_locality(numbers: list[Judged]) -> Verdict:
    ours, better = [], 0
    lengths = {one.length for one in numbers}
    for length in sorted(lengths):
        by_law = {one.cell.local: one for one in numbers if one.length == length}
        if set(by_law) == {False, True}:
            near, far = by_law[True].error, by_law[False].error
            ours.append(f"length {length}: error {1 - near.value:.2f} local, {1 - far.value:.2f} anywhere")
            better += near.low > far.high
    return "; ".join(ours), f"locality lowers the error at {better} of {len(ours)} lengths"


def _theorem(one: Judged) -> float:
    return one.theorem


def _improved(one: Judged) -> float:
    return one.improved


CLAIMS = (
    Claim(
        place="Theorem 4.3",
        claim="the bound says something about these models",
        paper="informative for delta in o(L^-5)",
        judge=partial(_informative, _theorem),
        rule="with a constant of 1 it lies below the error of guessing, 1/2",
    ),
    Claim(
        place="rebuttal",
        claim="the improved bound says something about these models",
        paper="O((M/L)^2 delta) does not decay with L",
        judge=partial(_informative, _improved),
        rule="with a constant of 1 it lies below the error of guessing, 1/2",
    ),
    Claim(
        place="Theorem 4.3",
        claim="the error lies below the bound",
        paper="proved, up to a constant",
        judge=partial(_kept, _theorem),
        rule="with a constant of 1 the lower end of the error's interval is at most the bound",
    ),
    Claim(
        place="rebuttal",
        claim="the error lies below the improved bound",
        paper="in outline, up to a constant",
        judge=partial(_kept, _improved),
        rule="with a constant of 1 the lower end of the error's interval is at most the bound",
    ),
    Claim(
        place="Theorem 4.3, locality",
        claim="without locality, where the bound is infinite, models err more",
        paper="locality is needed in the proof; the text says it can break without",
        judge=_needs_locality,
        rule="the binomial intervals of local and anywhere do not overlap",
    ),
)


def sections(results: Results, folder: Path) -> list[Section]:
    """Claims, the numbers, and the picture."""
    scale = read_scale(Scale, results)
    numbers = judged(scale, finished(SampleLog(folder / "samples.jsonl"), parity_cells.cells_of(scale)))
    table = claims_table(CLAIMS, numbers, ours="ours")
    assert table is not None
    return [
        Section(
            title="The bounds against sparse parity",
            paragraphs=[
                "What theorem 4.3 and the bound of the rebuttal allow, and what trained models do. "
                + " ".join(f"{row[0]}: {row[1]}: {row[4]}." for row in table.rows)
            ],
            tables=[table, bounds_table(numbers)],
            figures=[bounds_picture(numbers)],
            notes=results.notes,
        )
    ]


def bounds_table(numbers: list[Judged]) -> Table:
    """One line for each cell and length."""
    return Table(
        columns=[
            "law",
            "test length",
            "error",
            "delta (ours)",
            "eta_L",
            "eta_M",
            "theorem 4.3",
            "improved",
            "delta that theorem 4.3 needs",
            "delta that the improved one needs",
        ],
        rows=[
            [
                one.cell.key,
                one.length,
                f"{1 - one.error.value:.3f}",
                f"{one.delta:.2g}",
                *map(_bound_text, (*one.etas, one.theorem, one.improved)),
                *(f"{needed:.2g}" for needed in one.needed),
            ]
            for one in numbers
        ],
        caption="Errors and bounds with a constant of 1; a bound below 0.5 says something",
    )


def bounds_picture(numbers: list[Judged]) -> Picture:
    """Error and finite bounds by length, a panel for each law."""
    cells = list(dict.fromkeys(one.cell for one in numbers))
    curves = {cell: _curves([one for one in numbers if one.cell == cell]) for cell in cells}
    with drawn(height=3.0, panels=(1, len(cells)), legend=max(curves.values(), key=len), share_y=True) as (
        figure,
        grid,
    ):
        for axes, (cell, of_cell) in zip(grid[0], curves.items(), strict=True):
            axes.axhline(0.5, color="#777777", linestyle="--", linewidth=1.3)
            draw_curves(axes, of_cell)
            axes.set_yscale("log")
            axes.set(title="local" if cell.local else "anywhere", xlabel="test length (tokens)")
        grid[0][0].set_ylabel("error, or bound on it")
        legend_below(figure, grid[0][max(range(len(cells)), key=lambda index: len(curves[cells[index]]))])
        return picture(
            figure,
            name="sparsity-bounds",
            title="Sparse parity: error and bounds",
            alt="Error of trained models and the bounds by test length, on a logarithmic axis; above the dashed line "
            "at 1/2 a bound says nothing.",
            caption="Constants of 1. Dashed: guessing. A bound that is infinite is not drawn.",
        )


def _curves(numbers: list[Judged]) -> list[Curve]:
    lengths = [one.length for one in numbers]
    errors = Curve(
        label="error",
        x=lengths,
        y=[max(wrong(one.error), 1e-9) for one in numbers],
        low=[max(1 - one.error.high, 1e-9) for one in numbers],
        high=[1 - one.error.low for one in numbers],
    )
    bounds = (("theorem 4.3", _theorem), ("improved (rebuttal)", _improved))
    return [
        errors,
        *(
            Curve(label=label, x=lengths, y=[bound(one) for one in numbers], style=style)
            for style, (label, bound) in enumerate(bounds, start=1)
            if all(math.isfinite(bound(one)) for one in numbers)
        ),
    ]


def _bound_text(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.2g}"


def run(out: Path, scale: Scale, *, resume: bool, overwrite: bool) -> Results:
    """The cells of the smallest k."""
    return run_grid(
        KIND,
        parity_cells.cells_of(scale),
        parity_cells.check,
        parity_cells.run_cell,
        parity_cells.cell_rows,
        parity_cells.notes,
        out,
        scale,
        resume=resume,
        overwrite=overwrite,
    )


SPARSITY_BOUNDS = Study(
    title="The bounds of the sparsity paper, and what models do",
    parts=(
        Part(run=run, sections=sections, scales=SCALES, heading="Where sparse parity's numbers come from"),
        Part(
            run=run_coupled,
            sections=coupled_sections,
            scales=coupling_cells.SCALES,
            folder="parts/coupling",
            heading="Where parity with scratchpad comes from",
        ),
    ),
    takes=("seeds", "steps"),
)
