"""The page of sparse parity: the paper's claims against our numbers, accuracy by length and k, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise_studies.skeleton import Claim, Part, Study, Verdict, claims_table
from lengthwise_studies.sparsity.parity_cells import (
    SCALES,
    Cell,
    Scale,
    cell_rows,
    cells_of,
    check,
    notes,
    place,
    run_cell,
)
from lengthwise_studies.sparsity.shares import (
    Outcome,
    Share,
    above,
    below,
    decision,
    difference,
    finished,
    over_seeds,
    pooled,
    read_scale,
    run_grid,
    share,
)

CHANCE = 0.5
LEARNED = 0.9
"""Accuracy in training range, at the tested k within training, from which a model counts as trained."""
KIND = "sparse-parity"

Found = Mapping[Cell, Outcome]


def over(cell: Cell, outcome: Outcome, scale: Scale, *, lengths: Iterable[int]) -> Share:
    """Accuracy pooled over these lengths and the tested k that the cell was trained on."""
    ks = [k for k in scale.test_ks if k <= cell.k]
    return pooled(outcome, [place(k, length) for k in ks for length in lengths])


def trained(found: Found, scale: Scale) -> dict[Cell, Share]:
    """The cells that learned their training range, with the accuracy in it."""
    shortest = scale.train_lengths[0]
    inside = {
        cell: over(cell, one, scale, lengths=(shortest, scale.train_length)) for cell, one in found.items()
    }
    return {cell: one for cell, one in inside.items() if one.value >= LEARNED}


def _keeps(scale: Scale, factor: int, found: Found) -> Verdict:
    """Over half of what is above chance in range is left at so many times L."""
    inside, length = trained(found, scale), factor * scale.train_length
    at = {cell: over_seeds(over(cell, found[cell], scale, lengths=(length,)).seeds) for cell in inside}
    middle = {cell: (one.value + CHANCE) / 2 for cell, one in inside.items()}
    kept = sum(above(one, middle[cell]) for cell, one in at.items())
    lost = sum(below(one, middle[cell]) for cell, one in at.items())
    ours = "; ".join(f"{cell.key}: {inside[cell].value:.2f} in range, {one.text}" for cell, one in at.items())
    return ours or "none", _of(kept, lost, len(at), len(found))


def _falls(scale: Scale, found: Found) -> Verdict:
    """The smallest tested k is better at 2L than the largest in training."""
    length, ours, falling, rising, tried = 2 * scale.train_length, [], 0, 0, 0
    for cell in trained(found, scale):
        ks = [k for k in scale.test_ks if k <= cell.k]
        if len(ks) < 2:
            continue
        few, many = (share(found[cell], place(k, length)) for k in (ks[0], ks[-1]))
        lost = difference(many, few)
        ours.append(f"{cell.key}: k = {ks[-1]} minus k = {ks[0]} {lost.text}")
        tried += 1
        falling += below(lost)
        rising += above(lost)
    return "; ".join(ours) or "none", decision(falling, rising, tried)


def _beyond_k(scale: Scale, found: Found) -> Verdict:
    """Nearer to chance than to right at the largest tested k, at length L."""
    ours, failing, managing, tried = [], 0, 0, 0
    for cell in trained(found, scale):
        larger = [k for k in scale.test_ks if k > cell.k]
        if not larger:
            continue
        one = over_seeds(share(found[cell], place(larger[-1], scale.train_length)).seeds)
        ours.append(f"{cell.key}: k = {larger[-1]} {one.text}")
        tried += 1
        failing += below(one, (1 + CHANCE) / 2)
        managing += above(one, (1 + CHANCE) / 2)
    return "; ".join(ours) or "none", decision(failing, managing, tried)


def _locality(scale: Scale, found: Found) -> Verdict:
    """Local against anywhere at 2L, where both are trained."""
    fitting, length = trained(found, scale), 2 * scale.train_length
    ours, better, worse, tried = [], 0, 0, 0
    for cell in fitting:
        other = Cell(k=cell.k, local=True, encoding=cell.encoding)
        if cell.local or other not in fitting:
            continue
        far, near = (over(one, found[one], scale, lengths=(length,)) for one in (cell, other))
        gained = difference(near, far)
        ours.append(f"k up to {cell.k}: local minus anywhere {gained.text}")
        tried += 1
        better += above(gained)
        worse += below(gained)
    if not tried:
        return "none", "says nothing: not trained"
    return "; ".join(ours), f"local better at {better} of {tried}, worse at {worse}"


def _of(holding: int, failing: int, tried: int, cells: int) -> str:
    untrained = f"; {cells - tried} not trained" if cells > tried > 0 else ""
    return decision(holding, failing, tried) + untrained


def _text(one: Share) -> str:
    return Estimate(one.value, one.low, one.high).text


def claims(scale: Scale) -> tuple[Claim, ...]:
    """What the paper says of sparse parity; each is decided on the cells that learned their training range."""
    kept = "the interval of the accuracy lies above the middle of chance and the accuracy in range"
    return (
        *(
            Claim(
                place="sparse parity, figure",
                claim=f"with few planted tokens accuracy holds at {factor} times the training length",
                paper="drawn, no number found",
                judge=partial(_keeps, scale, factor),
                rule=kept,
            )
            for factor in (2, scale.reach)
        ),
        Claim(
            place="sparse parity, figure",
            claim="at twice the training length accuracy falls as k grows",
            paper="drawn, no number found",
            judge=partial(_falls, scale),
            rule="the accuracy at the largest tested k in training minus that at the smallest lies below 0",
        ),
        Claim(
            place="sparse parity, figure",
            claim="models fail at a k beyond training",
            paper="drawn, no number found",
            judge=partial(_beyond_k, scale),
            rule="at length L and the largest tested k, the interval lies below 3/4",
        ),
        Claim(
            place="Theorem 4.3, locality",
            claim="local planted tokens generalize to longer samples, others need not",
            paper="the bound needs locality",
            judge=partial(_locality, scale),
            rule="better or worse: at 2L the interval of local minus anywhere leaves out 0",
        ),
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """Claims, the table, and a picture with and one without locality."""
    scale = read_scale(Scale, results)
    found = finished(SampleLog(folder / "samples.jsonl"), cells_of(scale))
    table = claims_table(
        claims(scale),
        found,
        ours="ours, mean over seeds [95 %]",
        notes=[
            f"A model counts as trained if its accuracy in training range, over the tested k within training, is at "
            f"least {LEARNED}.",
            "Intervals of the claims are Student's over seeds, of differences paired by seed.",
        ],
    )
    assert table is not None
    pictures = [
        accuracy_picture(
            scale, {cell: one for cell, one in found.items() if cell.local == local}, local=local
        )
        for local in (False, True)
        if any(cell.local == local for cell in found)
    ]
    return [
        Section(
            title="Sparse parity by length and k",
            paragraphs=[
                "The label is the parity of k bits among symbols that mean nothing. Does what is learned on short "
                "samples hold on longer ones, by how many bits matter?"
            ],
            tables=[table, accuracy_table(scale, found)],
            figures=pictures,
            notes=results.notes,
        )
    ]


def accuracy_table(scale: Scale, found: Found) -> Table:
    """One line for each cell and tested k within training."""
    lengths = scale.test_lengths
    return Table(
        columns=["trained on", "tested k", *(f"at {length}" for length in lengths)],
        rows=[
            [cell.key, k, *(_text(share(one, place(k, length))) for length in lengths)]
            for cell, one in found.items()
            for k in scale.test_ks
            if k <= cell.k
        ],
        caption="Accuracy by length, pooled over seeds [95 %]; chance is 0.5",
    )


def accuracy_picture(scale: Scale, found: Found, *, local: bool) -> Picture:
    """One panel for each tested k, one curve for each largest k in training; each seed as a thin line."""
    lengths = scale.test_lengths
    curves = {
        k: [
            curve
            for style, (cell, outcome) in enumerate(found.items())
            for curve in _curves(f"trained on k up to {cell.k}", outcome, k, lengths, style)
        ]
        for k in scale.test_ks
    }
    columns = 3
    rows = -(-len(scale.test_ks) // columns)
    with drawn(
        height=2.4 * rows, panels=(rows, columns), legend=next(iter(curves.values())), share_y=True
    ) as (figure, grid):
        panels = list(grid.flat)
        for axes, (k, of_k) in zip(panels, curves.items(), strict=False):
            axes.axvspan(scale.train_lengths[0], scale.train_length, color="#E69F00", alpha=0.13, linewidth=0)
            axes.axhline(CHANCE, color="#777777", linestyle="--", linewidth=1.3)
            draw_curves(axes, of_k)
            axes.set(title=f"k = {k}", ylim=(-0.03, 1.03), xlabel="test length (tokens)")
        for axes in panels[len(curves) :]:
            axes.set_visible(False)
        for axes in panels[::columns]:
            axes.set_ylabel("accuracy")
        legend_below(figure, panels[0])
        where = "local" if local else "anywhere"
        return picture(
            figure,
            name=f"sparse-parity-{where}",
            title=f"Sparse parity, planted tokens {'close together' if local else 'anywhere'}",
            alt="Accuracy by test length, a panel for each tested k. " + _ends(scale, found),
            caption="Pooled over seeds, with exact binomial 95 % intervals; each seed as a thin line. Shaded: "
            "training lengths. Dashed: chance.",
        )


def _curves(label: str, outcome: Outcome, k: int, lengths: tuple[int, ...], style: int) -> list[Curve]:
    at = [share(outcome, place(k, length)) for length in lengths]
    seeds = [
        Curve(label=label, x=lengths, y=seed, style=style, faint=True)
        for seed in zip(*(one.seeds for one in at), strict=True)
    ]
    whole = Curve(
        label=label,
        x=lengths,
        y=[one.value for one in at],
        low=[one.low for one in at],
        high=[one.high for one in at],
        style=style,
    )
    return [*seeds, whole]


def _ends(scale: Scale, found: Found) -> str:
    length = scale.test_lengths[-1]
    return " ".join(
        f"Trained on k up to {cell.k}: {over(cell, one, scale, lengths=(length,)).value:.2f} at length {length}."
        for cell, one in found.items()
    )


def run(out: Path, scale: Scale, *, resume: bool, overwrite: bool) -> Results:
    """All cells of a scale."""
    return run_grid(
        KIND,
        cells_of(scale),
        check,
        run_cell,
        cell_rows,
        notes,
        out,
        scale,
        resume=resume,
        overwrite=overwrite,
    )


SPARSE_PARITY = Study(
    title="Sparse parity: length generalization by the number of tokens that matter",
    parts=(Part(run=run, sections=sections, scales=SCALES),),
    takes=("seeds", "steps"),
)
