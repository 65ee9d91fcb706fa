"""Position coupling: one cell for each task, arm and encoding of the order of tokens; exact responses by length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

from lengthwise.report.drawing import Picture
from lengthwise.report.tables import Table
from lengthwise_studies.claims import Claim
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity import coupling, grid
from lengthwise_studies.sparsity.coupled_tasks import COUPLED_TASKS, CoupledTask
from lengthwise_studies.sparsity.coupling import PREDICTED, Ids
from lengthwise_studies.sparsity.grid import LEARNED, Case, Outcome, Share, by_cases
from lengthwise_studies.synthetic.training import CellScale
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
TABLE = 128
"""Rows of the table of ids."""


@dataclass(frozen=True, kw_only=True)
class CouplingScale(CellScale):
    """How large the study is. `factors` are the test lengths, in units of the longest in training."""

    steps: int = 500
    batch: int = 32
    samples: int = 64
    width: int = 64
    factors: tuple[int, ...] = (1, 2, 3, 4)


SCALES: dict[str, CouplingScale] = {
    "default": CouplingScale(),
    "laptop": CouplingScale(seeds=3),
    "smoke": CouplingScale(seeds=2, steps=2, batch=2, factors=(1, 2), samples=2, width=8, heads=2),
}


@dataclass(frozen=True)
class CoupledCell:
    """A name of `COUPLED_TASKS`, an arm of `ARM_NAMES`, and an encoding of the order of tokens."""

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


def run_cell(cell: CoupledCell, scale: CouplingScale) -> Outcome:
    """Train on every length up to the longest, decode at every test length."""
    symbols, steps = len(cell.of.vocabulary), scale.steps * BUDGETS[cell.task]

    def test(model: StackedTransformer) -> list[tuple[str, int, list[int]]]:
        found: list[tuple[str, int, list[int]]] = []
        sizes = {"models": scale.seeds, "samples": scale.samples, "table": TABLE}
        for length in cell.lengths(scale):
            # The seed is the length alone: all arms meet the same samples.
            batch = coupling.held_out_batch(cell.of, cell.ids, length=length, seed=length, **sizes)
            counts: dict[str, list[int]] = dict(
                zip((TOKENS, BOTH), coupling.exact_responses(model, batch), strict=True)
            )
            found += [(what, length, counts[what]) for what in reversed(cell.tested)]
        return found

    return grid.run_stack(
        scale,
        coupling.coupled_batches(
            cell.of,
            cell.ids,
            longest=TRAIN_LENGTHS[cell.task],
            size=scale.batch,
            steps=steps,
            seeds=range(scale.seeds),
            table=TABLE,
        ),
        coupling.coupled_losses,
        test,
        steps=steps,
        rate=3e-3,
        vocabulary=symbols,
        encoding=cell.encoding,
        tokens=symbols,
        id_table=0 if cell.ids == "none" else TABLE,
        ids=TABLE if cell.ids in PREDICTED else 0,
        pointing=cell.ids == "pointed",
        layers=LAYERS[cell.task],
    )


def names(cell: CoupledCell, what: str) -> tuple[str, str]:
    """Task and metric: exact responses in tokens, or in ids too, or the training loss."""
    return cell.task, "exact_" + what.replace(" ", "_") if what else "train_loss"


Outcomes = Mapping[CoupledCell, Outcome]
CELLS = [
    CoupledCell(task, ids, encoding)
    for encoding, task, ids in product(ENCODINGS, TRAIN_LENGTHS, ARM_NAMES)
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
        f"Ids are rows of a learned table of {TABLE}, added to the embedding. Rotary positions count tokens.",
        "The pointing head, the ids of variable assignment, and all sizes are ours.",
    ]


def _by_encoding(
    scale: CouplingScale, task: str, arms: tuple[Ids, ...], found: Outcomes
) -> Iterator[tuple[str, bool, list[Share]]]:
    """For each encoding and length beyond training: its name, whether the first arm was trained, each arm's share."""
    for encoding, name in ENCODINGS.items():
        cells = [CoupledCell(task, arm, encoding) for arm in arms]
        if set(cells) <= set(found):
            shares = [grid.by_length(found[cell], cell.tested[0], cell.lengths(scale)) for cell in cells]
            inside, *beyond = zip(*shares, strict=True)
            for factor, of_arms in zip(scale.factors[1:], beyond, strict=True):
                yield f"{name} at {factor}x", inside[0].value >= LEARNED, list(of_arms)


def _higher(scale: CouplingScale, task: str, arms: tuple[Ids, Ids], found: Outcomes) -> Iterator[Case]:
    """More exact responses than another arm, for every encoding and length beyond training."""
    for name, learned, shares in _by_encoding(scale, task, arms, found):
        gained = grid.difference(*shares)
        yield Case(f"{name}: {gained.text}{'' if learned else ', not trained'}", gained, counts=learned)


def _holds(scale: CouplingScale, task: str, arm: Ids, found: Outcomes) -> Iterator[Case]:
    """Exact responses in most cases."""
    for name, learned, [share] in _by_encoding(scale, task, (arm,), found):
        at = grid.over_seeds(share.seeds)
        yield Case(f"{name}: {at.text}{'' if learned else ', not trained'}", at, LEARNED, counts=learned)


COMPARED: tuple[tuple[Ids, Ids, str], ...] = (
    ("coupled", "none", "position coupling generalizes further than no ids"),
    ("coupled", "random", "position coupling generalizes further than random ids"),
    ("predicted", "none", "predictive position coupling generalizes further than no ids"),
    ("predicted", "coupled", "predicting the ids costs nothing"),
    ("pointed", "predicted", "a pointing head is better than one class for each id"),
)
NO_NUMBER = "drawn, no number found"
NUMBERS = {("addition", "coupled"): "trained on 1..30 digits, up to 200 (Cho et al. 2024, abstract)"}


def claims(scale: CouplingScale) -> Iterator[Claim]:
    """What the papers say of coupling; each is decided on the cells that learned their training range."""
    times = f"at {', '.join(f'{factor:g}' for factor in scale.factors[1:])} times the longest training length"
    for task, longest in TRAIN_LENGTHS.items():
        ours = f"{task}, ours trained on 1..{longest}, up to {longest * scale.factors[-1]}"
        for arm, against, says in COMPARED:
            yield Claim(
                place=task,
                says=f"{says} ({task})",
                paper="ours" if arm == "pointed" else NO_NUMBER,
                test=by_cases(
                    f"{times} the interval of {ARM_NAMES[arm]} minus {ARM_NAMES[against]} leaves out 0",
                    partial(_higher, scale, task, (arm, against)),
                    "higher in {0} of {2} cases, lower in {1}".format,
                ),
            )
        for arm in ("coupled", "predicted"):
            yield Claim(
                place=task,
                says=f"{ARM_NAMES[arm]} ids hold beyond training ({ours})",
                paper=NUMBERS.get((task, arm), NO_NUMBER),
                test=by_cases(
                    f"{times} the interval of exact responses lies at or above {LEARNED}",
                    partial(_holds, scale, task, arm),
                    partial(grid.decision, of=" cases"),
                ),
            )


def exact_table(scale: CouplingScale, found: Outcomes) -> Table:
    """One line for each cell and metric."""
    return Table(
        columns=["task", "arm", "exact", *(f"at {factor} times" for factor in scale.factors)],
        rows=[
            [
                cell.task,
                f"{ARM_NAMES[cell.ids]}, {ENCODINGS[cell.encoding]}",
                what,
                *grid.by_length(outcome, what, cell.lengths(scale)),
            ]
            for cell, outcome in found.items()
            for what in cell.tested
        ],
        caption="Exact responses by length, in units of the longest in training; pooled over seeds [95 %]",
    )


def exact_picture(scale: CouplingScale, found: Outcomes, encoding: str) -> Picture | None:
    """One panel for each task, one curve for each arm and metric."""
    return grid.share_picture(
        (
            (cell.task, ARM_NAMES[cell.ids] + (", tokens alone" if what != cell.tested[0] else ""), one, what)
            for cell, one in found.items()
            for what in cell.tested
            if cell.encoding == encoding
        ),
        {cell.task: cell.lengths(scale) for cell in found},
        {task: (1, longest) for task, longest in TRAIN_LENGTHS.items()},
        name=f"position-coupling-{ENCODINGS[encoding].lower()}",
        title=f"Exact responses by length and ids ({ENCODINGS[encoding]})",
        across="test length",
        up="exact responses",
        caption="Where ids are predicted, a wrong id is an error, except for tokens alone.",
    )


GRID = grid.counted(
    names,
    kind="position-coupling",
    scale=CouplingScale,
    cells=lambda scale: CELLS,
    work=run_cell,
    notes=notes,
    claims=claims,
    reading=[
        f"A cell counts as trained if at least {LEARNED} of its responses at the longest training length are exact. "
        "Intervals are Student's over seeds, differences paired by seed; fewer than three seeds have none."
    ],
    tables=lambda scale, found: [exact_table(scale, found)],
    pictures=lambda scale, found: (exact_picture(scale, found, encoding) for encoding in ENCODINGS),
    title="Position coupling, given and predicted",
    question="Tokens that belong together share a position id. Do models that are given such ids, or predict them, "
    "answer questions four times as long as those they were trained on?",
)
POSITION_COUPLING = Study(
    title="Position coupling: ids that couple tokens, given and predicted",
    parts=(GRID.part(SCALES),),
    takes=("seeds", "steps"),
)
