"""The page of position coupling: claims against our numbers, exact responses by length, pictures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from lengthwise.report.drawing import Curve, Picture, draw_curves, drawn, legend_below, picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results
from lengthwise.samples import SampleLog
from lengthwise_studies.skeleton import Claim, Part, Study, Verdict, claims_table
from lengthwise_studies.sparsity.coupling import ARMS, PREDICTED, Ids
from lengthwise_studies.sparsity.coupling_cells import (
    BOTH,
    CELLS,
    ENCODINGS,
    SCALES,
    TOKENS,
    TRAIN_LENGTHS,
    Cell,
    Scale,
    cell_rows,
    check,
    headline,
    lengths_of,
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
    read_scale,
    run_grid,
    share,
)

KIND = "position-coupling"
LEARNED = 0.9
"""Exact responses at the longest training length from which a model counts as trained."""
ENCODING_NAMES = {"none": "NoPE", "rotary": "rotary"}
ARM_NAMES: dict[Ids, str] = {
    "none": "no ids",
    "random": "random ids",
    "coupled": "coupled, given",
    "predicted": "predicted",
    "pointed": "predicted by pointing (ours)",
}

Found = Mapping[Cell, Outcome]


def exact(cell: Cell, found: Found, length: int) -> Share:
    """The headline share of a cell at a length."""
    return share(found[cell], place(headline(cell), length))


def learned(cell: Cell, found: Found) -> bool:
    """Whether the cell's models learned their training range."""
    return exact(cell, found, TRAIN_LENGTHS[cell.task]).value >= LEARNED


def _higher(scale: Scale, task: str, ids: Ids, against: Ids, found: Found) -> Verdict:
    """More exact responses than another arm at the longest length, for every encoding that was run."""
    ours, higher, lower, tried = [], 0, 0, 0
    for encoding in ENCODINGS:
        one, other = (Cell(task=task, ids=arm, encoding=encoding) for arm in (ids, against))
        if one not in found or other not in found:
            continue
        length = lengths_of(one, scale)[-1]
        gained = difference(exact(one, found, length), exact(other, found, length))
        untrained = "" if learned(one, found) else ", not trained"
        ours.append(f"{ENCODING_NAMES[encoding]}: {gained.text}{untrained}")
        tried += learned(one, found)
        higher += learned(one, found) and above(gained)
        lower += learned(one, found) and below(gained)
    verdict = f"higher with {higher} of {tried} encodings, lower with {lower}"
    return "; ".join(ours), verdict if tried else "says nothing: not trained"


def _holds(scale: Scale, task: str, ids: Ids, found: Found) -> Verdict:
    """Exact responses at the longest length in most cases."""
    ours, holding, failing, tried = [], 0, 0, 0
    for encoding in ENCODINGS:
        cell = Cell(task=task, ids=ids, encoding=encoding)
        if cell not in found:
            continue
        inside, at = (
            over_seeds(exact(cell, found, length).seeds)
            for length in (TRAIN_LENGTHS[task], lengths_of(cell, scale)[-1])
        )
        ours.append(f"{ENCODING_NAMES[encoding]}: {inside.text} in training range, {at.text}")
        tried += learned(cell, found)
        # Seeds that all agree have an interval of no width.
        holding += learned(cell, found) and at.low is not None and at.low >= LEARNED
        failing += learned(cell, found) and below(at, LEARNED)
    return "; ".join(ours), decision(holding, failing, tried, of=" encodings")


@dataclass(frozen=True, kw_only=True)
class ArmClaim(Claim):
    """A claim about arms of a task."""

    task: str
    arms: tuple[Ids, ...]

    def verdict(self, numbers: Found) -> Verdict | None:
        """None where no encoding has all of the arms."""
        run = any(
            all(Cell(task=self.task, ids=arm, encoding=encoding) in numbers for arm in self.arms)
            for encoding in ENCODINGS
        )
        return self.judge(numbers) if run else None


def claims(scale: Scale) -> tuple[Claim, ...]:
    """What the papers say of coupling; each is decided on the cells that learned their training range."""
    times = f"{scale.factors[-1]} times the longest training length"
    compared: Sequence[tuple[Ids, Ids, str]] = (
        ("coupled", "none", "position coupling generalizes further than no ids"),
        ("coupled", "random", "position coupling generalizes further than random ids"),
        ("predicted", "none", "predictive position coupling generalizes further than no ids"),
        ("predicted", "coupled", "predicting the ids costs nothing"),
        ("pointed", "predicted", "a pointing head is better than one class for each id"),
    )
    return tuple(
        claim
        for task in TRAIN_LENGTHS
        for claim in (
            *(
                ArmClaim(
                    place=task,
                    task=task,
                    arms=(arm, against),
                    claim=f"{says} ({task})",
                    paper="ours" if arm == "pointed" else "drawn, no number found",
                    judge=partial(_higher, scale, task, arm, against),
                    rule=f"at {times} the interval of {ARM_NAMES[arm]} minus {ARM_NAMES[against]} leaves out 0",
                )
                for arm, against, says in compared
            ),
            *(
                ArmClaim(
                    place=task,
                    task=task,
                    arms=(arm,),
                    claim=f"{ARM_NAMES[arm]} ids hold at {times} ({task})",
                    paper="1..30 digits up to 200 (Cho et al. 2024, abstract)"
                    if (task, arm) == ("addition", "coupled")
                    else "drawn, no number found",
                    judge=partial(_holds, scale, task, arm),
                    rule=f"the interval of exact responses lies at or above {LEARNED}",
                )
                for arm in ("coupled", "predicted")
            ),
        )
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """Claims, the table, and a picture for each encoding."""
    scale = read_scale(Scale, results)
    found = finished(SampleLog(folder / "samples.jsonl"), CELLS)
    table = claims_table(
        claims(scale),
        found,
        ours="ours, mean over seeds [95 %]",
        notes=[
            f"A cell counts as trained if at least {LEARNED} of its responses at the longest training length are "
            "exact. Intervals are Student's over seeds, differences paired by seed; fewer than three seeds have none."
        ],
    )
    tables = [table] if table is not None else []
    return [
        Section(
            title="Position coupling, given and predicted",
            paragraphs=[
                "Tokens that belong together share a position id. Do models that are given such ids, or predict "
                "them, answer questions four times as long as those they were trained on?"
            ],
            tables=[*tables, exact_table(scale, found)],
            figures=[
                exact_picture(
                    scale,
                    {cell: one for cell, one in found.items() if cell.encoding == encoding},
                    ENCODING_NAMES[encoding],
                )
                for encoding in ENCODINGS
                if any(cell.encoding == encoding for cell in found)
            ],
            notes=results.notes,
        )
    ]


def exact_table(scale: Scale, found: Found) -> Table:
    """One line for each cell and metric."""
    rows = []
    for cell, outcome in found.items():
        for metric in (BOTH, TOKENS) if cell.ids in PREDICTED else (TOKENS,):
            shares = [share(outcome, place(metric, length)) for length in lengths_of(cell, scale)]
            cells = [Estimate(one.value, one.low, one.high) for one in shares]
            name = f"{ARM_NAMES[cell.ids]}, {ENCODING_NAMES[cell.encoding]}"
            rows.append([cell.task, name, metric, *cells])
    return Table(
        columns=["task", "arm", "exact", *(f"at {factor} times" for factor in scale.factors)],
        rows=rows,
        caption="Exact responses by length, in units of the longest in training; pooled over seeds [95 %]",
    )


def exact_picture(scale: Scale, found: Found, encoding: str) -> Picture:
    """One panel for each task, one curve for each arm; where ids are predicted, tokens alone are dashed."""
    tasks = [task for task in TRAIN_LENGTHS if any(cell.task == task for cell in found)]
    curves = {task: _curves(scale, {c: one for c, one in found.items() if c.task == task}) for task in tasks}
    longest = max(curves.values(), key=len)
    with drawn(height=2.8, panels=(1, len(tasks)), legend=longest, share_y=True) as (figure, grid):
        for axes, (task, of_task) in zip(grid[0], curves.items(), strict=True):
            axes.axvspan(1, TRAIN_LENGTHS[task], color="#E69F00", alpha=0.13, linewidth=0)
            draw_curves(axes, of_task)
            for line in axes.lines:
                if str(line.get_label()).endswith(", tokens alone"):
                    line.set_linestyle("--")
            axes.set(title=task, ylim=(-0.03, 1.03), xlabel="test length")
        grid[0][0].set_ylabel("exact responses")
        legend_below(figure, grid[0][tasks.index(max(curves, key=lambda task: len(curves[task])))])
        return picture(
            figure,
            name=f"position-coupling-{encoding.lower()}",
            title=f"Exact responses by length and ids ({encoding})",
            alt=f"Share of exact responses by length, a panel for each task, {encoding}. "
            + " ".join(
                f"{cell.key}: {share(one, place(headline(cell), lengths_of(cell, scale)[-1])).value:.2f} at the end."
                for cell, one in found.items()
            ),
            caption="Pooled over seeds, with exact binomial 95 % intervals. Shaded: training lengths. Where ids are "
            "predicted, a wrong id is an error; dashed: tokens alone.",
        )


def _curves(scale: Scale, found: Found) -> list[Curve]:
    curves = []
    for cell, outcome in found.items():
        for alone, metric in enumerate((BOTH, TOKENS) if cell.ids in PREDICTED else (TOKENS,)):
            lengths = lengths_of(cell, scale)
            shares = [share(outcome, place(metric, length)) for length in lengths]
            curves.append(
                Curve(
                    label=ARM_NAMES[cell.ids] + (", tokens alone" if alone else ""),
                    x=lengths,
                    y=[one.value for one in shares],
                    low=[one.low for one in shares],
                    high=[one.high for one in shares],
                    style=ARMS.index(cell.ids),
                )
            )
    return curves


def run(out: Path, scale: Scale, *, resume: bool, overwrite: bool) -> Results:
    """All cells."""
    return run_grid(
        KIND, CELLS, check, run_cell, cell_rows, notes, out, scale, resume=resume, overwrite=overwrite
    )


POSITION_COUPLING = Study(
    title="Position coupling: ids that couple tokens, given and predicted",
    parts=(Part(run=run, sections=sections, scales=SCALES),),
    takes=("seeds", "steps"),
)
