"""Position coupling: one cell for each task, arm and encoding of the order of tokens; exact responses by length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from lengthwise.errors import UsageError
from lengthwise.report.drawing import Picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Cell as TableCell
from lengthwise.report.tables import Table
from lengthwise_studies.cell_runs import Grid
from lengthwise_studies.claims import Claim, Decision, Rule, judge, verdict_table
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity.coupled_tasks import COUPLED_TASKS, CoupledTask
from lengthwise_studies.sparsity.coupling import (
    ARMS,
    PREDICTED,
    Ids,
    coupled_batches,
    coupled_losses,
    exact_responses,
    held_out_batch,
)
from lengthwise_studies.sparsity.grid import LEARNED, GridScale, run_stack, share_picture, share_rows
from lengthwise_studies.sparsity.shares import (
    Case,
    Outcome,
    Share,
    case,
    difference,
    over_seeds,
    place,
    share,
    verdict_on,
)
from lengthwise_studies.synthetic.transformer import StackedTransformer

TRAIN_LENGTHS = {"parity": 10, "variable-assignment": 5, "addition": 5}
"""The longest in training; the longest at test is four times that. Only 26 variables differ."""
LAYERS = {"parity": 1, "variable-assignment": 2, "addition": 1}
"""What a task needs: the id of a variable is found in two steps, from its pair and from the pair that leads on."""
BUDGETS = {"parity": 1, "variable-assignment": 4, "addition": 4}
"""How many times the steps of the scale a task gets; one that is slow to fit gets more."""
ENCODINGS = {"none": "NoPE", "rotary": "rotary"}
ARM_NAMES: dict[Ids, str] = {
    "none": "no ids",
    "random": "random ids",
    "coupled": "coupled, given",
    "predicted": "predicted",
    "pointed": "predicted by pointing (ours)",
}
TOKENS, BOTH = "tokens", "tokens and ids"


@dataclass(frozen=True, kw_only=True)
class CouplingScale(GridScale):
    """How large the study is, besides what `GridScale` has; a task takes its budget of steps.

    Args:
        factors: test lengths, in units of the longest in training.
        table: rows of the table of ids.
    """

    steps: int = 500
    samples: int = 64
    width: int = 64
    factors: tuple[int, ...] = (1, 2, 3, 4)
    table: int = 128


SCALES: dict[str, CouplingScale] = {
    "default": CouplingScale(),
    "laptop": CouplingScale(seeds=3),
    "smoke": CouplingScale(seeds=2, steps=2, batch=2, factors=(1, 2), samples=2, width=8, heads=2),
}


@dataclass(frozen=True)
class CoupledCell:
    """A name of `COUPLED_TASKS`, an arm of `ARMS`, and an encoding of the order of tokens."""

    task: str
    ids: Ids
    encoding: str = "none"

    @property
    def key(self) -> str:
        """All three."""
        return f"{self.task}, {self.ids} ids, {self.encoding}"

    @property
    def of(self) -> CoupledTask:
        """The task itself."""
        return COUPLED_TASKS[self.task]

    @property
    def tested(self) -> tuple[str, ...]:
        """What is counted; first what decides: a wrong predicted id is an error."""
        return (BOTH, TOKENS) if self.ids in PREDICTED else (TOKENS,)

    def lengths(self, scale: CouplingScale) -> tuple[int, ...]:
        """Test lengths."""
        return tuple(TRAIN_LENGTHS[self.task] * factor for factor in scale.factors)


def check(cell: CoupledCell, scale: CouplingScale) -> None:
    """Refuse a test length whose ids the table does not hold."""
    longest = max(cell.lengths(scale))
    ids = {"none": 0, "random": cell.of.tokens(longest)}.get(cell.ids, cell.of.ids(longest))
    if ids > scale.table:
        raise UsageError(
            f"{cell.task} of length {longest} has {ids} {cell.ids} ids, and the table holds {scale.table}",
            expected=f"a table of {ids} or more",
            fix="test shorter samples, or give the model a larger table",
        )


def run_cell(cell: CoupledCell, scale: CouplingScale) -> Outcome:
    """Train on every length up to the longest, decode at every test length."""
    task, symbols, steps = cell.of, len(cell.of.vocabulary), scale.steps * BUDGETS[cell.task]

    def test(model: StackedTransformer) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        sizes = {"models": scale.seeds, "samples": scale.samples, "table": scale.table}
        for length in cell.lengths(scale):
            # The seed is the length alone: all arms meet the same samples.
            exact = exact_responses(
                model, held_out_batch(task, cell.ids, length=length, seed=length, **sizes)
            )
            counts: dict[str, list[int]] = dict(zip((TOKENS, BOTH), exact, strict=True))
            found |= {place(what, length): counts[what] for what in reversed(cell.tested)}
        return found

    batches = coupled_batches(
        task,
        cell.ids,
        longest=TRAIN_LENGTHS[cell.task],
        size=scale.batch,
        steps=steps,
        seeds=range(scale.seeds),
        table=scale.table,
    )
    return run_stack(
        scale,
        batches,
        coupled_losses,
        test,
        steps=steps,
        rate=3e-3,
        vocabulary=symbols,
        encoding=cell.encoding,
        tokens=symbols,
        id_table=0 if cell.ids == "none" else scale.table,
        ids=scale.table if cell.ids in PREDICTED else 0,
        pointing=cell.ids == "pointed",
        layers=LAYERS[cell.task],
    )


def names(cell: CoupledCell, what: str) -> tuple[str, str]:
    """Task and metric: exact responses in tokens, or in ids too, or the training loss."""
    return cell.task, "exact_" + what.replace(" ", "_") if what else "train_loss"


Found = Mapping[CoupledCell, Outcome]
CELLS = [
    CoupledCell(task, ids, encoding)
    for encoding, task, ids in product(ENCODINGS, TRAIN_LENGTHS, ARMS)
    if (encoding, ids) != ("rotary", "pointed")
]


def notes(scale: CouplingScale) -> list[str]:
    """How to read the numbers."""
    lengths = ", ".join(f"{task} 1 .. {longest}" for task, longest in TRAIN_LENGTHS.items())
    steps = ", ".join(f"{scale.steps * BUDGETS[task]} ({task})" for task in TRAIN_LENGTHS)
    return [
        f"Models: one layer (two for variable assignment), width {scale.width}, {scale.heads} heads; {steps} "
        f"steps of {scale.batch} fresh samples with Adam; {scale.seeds} seeds. Lengths in training: {lengths}.",
        f"Exact: every token of the greedily decoded response is right, and, where ids are predicted, every id; "
        f"over {scale.samples} samples for each seed and length. The interval is the exact binomial one given these "
        "models.",
        f"Ids are rows of a learned table of {scale.table}, added to the embedding. Rotary positions count tokens.",
        "The pointing head, the ids of variable assignment, and all sizes are ours.",
    ]


def exact(cell: CoupledCell, found: Found, length: int) -> Share:
    """The share of a cell at a length that decides."""
    return share(found[cell], cell.tested[0], length)


def _by_encoding(
    task: str, arms: tuple[Ids, ...], found: Found
) -> Iterator[tuple[str, list[CoupledCell], Share, bool]]:
    """The cells of these arms where all were run: encoding, cells, the first one's share in range, if it learned."""
    for encoding, name in ENCODINGS.items():
        cells = [CoupledCell(task, arm, encoding) for arm in arms]
        if all(cell in found for cell in cells):
            inside = exact(cells[0], found, TRAIN_LENGTHS[task])
            yield name, cells, inside, inside.value >= LEARNED


def _higher(scale: CouplingScale, task: str, arms: tuple[Ids, Ids], found: Found) -> Decision | None:
    """More exact responses than another arm at the longest length, for every encoding that was run."""
    cases: list[Case] = []
    for name, cells, _, learned in _by_encoding(task, arms, found):
        gained = difference(*(exact(cell, found, cell.lengths(scale)[-1]) for cell in cells))
        words = f"{name}: {gained.text}{'' if learned else ', not trained'}"
        cases.append(case(words, gained, counts=learned))
    return verdict_on(cases, "higher with {0} of {2} encodings, lower with {1}".format) if cases else None


def _holds(scale: CouplingScale, task: str, arm: Ids, found: Found) -> Decision | None:
    """Exact responses at the longest length in most cases."""
    cases: list[Case] = []
    for name, [cell], inside, learned in _by_encoding(task, (arm,), found):
        at = over_seeds(exact(cell, found, cell.lengths(scale)[-1]).seeds)
        words = f"{name}: {over_seeds(inside.seeds).text} in training range, {at.text}"
        one = case(words, at, LEARNED, counts=learned)
        # Seeds that all agree have an interval of no width.
        cases.append(replace(one, holds=at.low is not None and at.low >= LEARNED))
    return verdict_on(cases, of=" encodings") if cases else None


COMPARED: Sequence[tuple[Ids, Ids, str]] = (
    ("coupled", "none", "position coupling generalizes further than no ids"),
    ("coupled", "random", "position coupling generalizes further than random ids"),
    ("predicted", "none", "predictive position coupling generalizes further than no ids"),
    ("predicted", "coupled", "predicting the ids costs nothing"),
    ("pointed", "predicted", "a pointing head is better than one class for each id"),
)
NO_NUMBER = "drawn, no number found"
NUMBERS = {("addition", "coupled"): "1..30 digits up to 200 (Cho et al. 2024, abstract)"}


def claims(scale: CouplingScale) -> Iterator[Claim]:
    """What the papers say of coupling; each is decided on the cells that learned their training range."""
    times = f"{scale.factors[-1]} times the longest training length"
    for task in TRAIN_LENGTHS:
        for arm, against, says in COMPARED:
            yield Claim(
                place=task,
                says=f"{says} ({task})",
                paper="ours" if arm == "pointed" else NO_NUMBER,
                test=Rule(
                    f"at {times} the interval of {ARM_NAMES[arm]} minus {ARM_NAMES[against]} leaves out 0",
                    partial(_higher, scale, task, (arm, against)),
                ),
            )
        for arm in ("coupled", "predicted"):
            yield Claim(
                place=task,
                says=f"{ARM_NAMES[arm]} ids hold at {times} ({task})",
                paper=NUMBERS.get((task, arm), NO_NUMBER),
                test=Rule(
                    f"the interval of exact responses lies at or above {LEARNED}",
                    partial(_holds, scale, task, arm),
                ),
            )


def page(scale: CouplingScale, found: Found) -> list[Section]:
    """Claims, the table, and a picture for each encoding."""
    table = verdict_table(
        judge(claims(scale), found),
        ours="ours, mean over seeds [95 %]",
        notes=[
            f"A cell counts as trained if at least {LEARNED} of its responses at the longest training length are "
            "exact. Intervals are Student's over seeds, differences paired by seed; fewer than three seeds have none."
        ],
    )
    return [
        Section(
            title="Position coupling, given and predicted",
            paragraphs=[
                "Tokens that belong together share a position id. Do models that are given such ids, or predict "
                "them, answer questions four times as long as those they were trained on?"
            ],
            tables=[*([table] if table.rows else []), exact_table(scale, found)],
            figures=[one for encoding in ENCODINGS for one in exact_picture(scale, found, encoding)],
        )
    ]


def exact_table(scale: CouplingScale, found: Found) -> Table:
    """One line for each cell and metric."""
    rows: list[list[TableCell]] = [
        [
            cell.task,
            f"{ARM_NAMES[cell.ids]}, {ENCODINGS[cell.encoding]}",
            what,
            *(share(outcome, what, length).estimate for length in cell.lengths(scale)),
        ]
        for cell, outcome in found.items()
        for what in cell.tested
    ]
    return Table(
        columns=["task", "arm", "exact", *(f"at {factor} times" for factor in scale.factors)],
        rows=rows,
        caption="Exact responses by length, in units of the longest in training; pooled over seeds [95 %]",
    )


def exact_picture(scale: CouplingScale, found: Found, encoding: str) -> list[Picture]:
    """One panel for each task, one curve for each arm and metric."""
    return share_picture(
        (
            (
                cell.task,
                ARM_NAMES[cell.ids] + (", tokens alone" if what != cell.tested[0] else ""),
                cell.lengths(scale),
                [share(outcome, what, length) for length in cell.lengths(scale)],
            )
            for cell, outcome in found.items()
            for what in cell.tested
            if cell.encoding == encoding
        ),
        {task: (1, longest) for task, longest in TRAIN_LENGTHS.items()},
        name=f"position-coupling-{ENCODINGS[encoding].lower()}",
        title=f"Exact responses by length and ids ({ENCODINGS[encoding]})",
        across="test length",
        up="exact responses",
        caption="Where ids are predicted, a wrong id is an error, except for tokens alone.",
    )


GRID = Grid(
    kind="position-coupling",
    scale=CouplingScale,
    cells=lambda scale: CELLS,
    check=check,
    work=run_cell,
    outcome=Outcome,
    rows=partial(share_rows, names),
    notes=notes,
    page=page,
)
POSITION_COUPLING = Study(
    title="Position coupling: ids that couple tokens, given and predicted",
    parts=(GRID.part(SCALES),),
    takes=("seeds", "steps"),
)
