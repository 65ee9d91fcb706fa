"""Position coupling: one cell for each task, arm and encoding of the order of tokens; exact responses by length."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product

from lengthwise.errors import UsageError, nearest
from lengthwise.results import Row
from lengthwise_studies.sparsity.coupled_tasks import COUPLED_TASKS
from lengthwise_studies.sparsity.coupling import (
    ARMS,
    PREDICTED,
    Ids,
    check_ids,
    coupled_batches,
    coupled_losses,
    exact_responses,
    held_out_batch,
)
from lengthwise_studies.sparsity.shares import OPTIMIZER, Outcome, final, loss_rows, share, share_row
from lengthwise_studies.synthetic.training import one_thread, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

TRAIN_LENGTHS = {"parity": 10, "variable-assignment": 5, "addition": 5}
"""The longest in training; the longest at test is four times that. Only 26 variables differ."""
LAYERS = {"parity": 1, "variable-assignment": 2, "addition": 1}
"""What a task needs: the id of a variable is found in two steps, from its pair and from the pair that leads on."""
BUDGETS = {"parity": 1, "variable-assignment": 4, "addition": 4}
"""How many times the steps of the scale a task gets; one that is slow to fit gets more."""
ENCODINGS = ("none", "rotary")
RATE = 3e-3
TOKENS, BOTH = "tokens", "tokens and ids"


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the study is.

    Args:
        seeds: models of each cell.
        steps: training steps, times the budget of the task.
        batch: samples a step and model.
        factors: test lengths, in units of the longest in training.
        samples: test samples for each model and length.
        table: rows of the table of ids.
        width, heads: of every model; the inner layer is four times as wide.
    """

    seeds: int = 5
    steps: int = 500
    batch: int = 32
    factors: tuple[int, ...] = (1, 2, 3, 4)
    samples: int = 64
    table: int = 128
    width: int = 64
    heads: int = 4


SCALES: dict[str, Scale] = {
    "default": Scale(),
    "laptop": Scale(seeds=3),
    "smoke": Scale(seeds=2, steps=2, batch=2, factors=(1, 2), samples=2, width=8, heads=2),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained from several seeds at once.

    Args:
        task: a name of `coupled_tasks.COUPLED_TASKS`.
        ids: an arm of `coupling.ARMS`.
        encoding: of the order of tokens, a name of `encodings.ENCODINGS`.
    """

    task: str
    ids: Ids
    encoding: str = "none"

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        return f"{self.task}, {self.ids} ids, {self.encoding}"


CELLS = [
    Cell(task=task, ids=ids, encoding=encoding)
    for encoding, task, ids in product(ENCODINGS, TRAIN_LENGTHS, ARMS)
    if (encoding, ids) != ("rotary", "pointed")
]


def lengths_of(cell: Cell, scale: Scale) -> tuple[int, ...]:
    """Test lengths."""
    return tuple(TRAIN_LENGTHS[cell.task] * factor for factor in scale.factors)


def place(metric: str, length: int) -> str:
    """The key of a test in an outcome."""
    return f"{metric}, length={length}"


def check(cell: Cell, scale: Scale) -> None:
    """Refuse what cannot run, before anything is trained.

    Raises:
        UsageError: an unknown task; a test length whose ids the table does not hold.
    """
    if cell.task not in COUPLED_TASKS:
        raise UsageError(f"there is no task {cell.task!r}", expected=nearest(cell.task, COUPLED_TASKS))
    longest = max(lengths_of(cell, scale))
    check_ids(COUPLED_TASKS[cell.task], cell.ids, length=longest, table=scale.table)


@one_thread()
def run_cell(cell: Cell, scale: Scale) -> Outcome:
    """Train every seed, decode at every length."""
    started, task, seeds = time.perf_counter(), COUPLED_TASKS[cell.task], list(range(scale.seeds))
    symbols, steps = len(task.vocabulary), scale.steps * BUDGETS[cell.task]
    model = StackedTransformer(
        Architecture(
            vocabulary=symbols,
            encoding=cell.encoding,
            tokens=symbols,
            id_table=0 if cell.ids == "none" else scale.table,
            ids=scale.table if cell.ids in PREDICTED else 0,
            pointing=cell.ids == "pointed",
            width=scale.width,
            layers=LAYERS[cell.task],
            heads=scale.heads,
            hidden=4 * scale.width,
        ),
        seeds,
    )
    drawn = coupled_batches(
        task,
        cell.ids,
        longest=TRAIN_LENGTHS[cell.task],
        size=scale.batch,
        steps=steps,
        seeds=seeds,
        table=scale.table,
    )
    rates = [RATE] * scale.seeds
    losses = list(train(model, drawn, OPTIMIZER, count=steps, rates=rates, losses=coupled_losses))
    right: dict[str, list[int]] = {}
    for length in lengths_of(cell, scale):
        # By length alone: all arms meet the same samples.
        batch = held_out_batch(
            task,
            cell.ids,
            length=length,
            models=scale.seeds,
            samples=scale.samples,
            seed=length,
            table=scale.table,
        )
        exact = exact_responses(model, batch)
        right[place(TOKENS, length)] = exact.tokens.tolist()
        if cell.ids in PREDICTED:
            right[place(BOTH, length)] = exact.both.tolist()
    return Outcome(
        train_loss=final(losses),
        samples=scale.samples,
        right=right,
        seconds=time.perf_counter() - started,
    )


def headline(cell: Cell) -> str:
    """The metric that counts: a wrong predicted id is an error."""
    return BOTH if cell.ids in PREDICTED else TOKENS


def cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """Exact responses by length with binomial intervals, and the training loss by seed."""
    rows = loss_rows(cell, cell.task, outcome)
    for tested in outcome.right:
        metric, length = tested.split(", length=")
        name = "exact_" + metric.replace(" ", "_")
        rows.append(share_row(cell, cell.task, name, share(outcome, tested), length=int(length)))
    return rows


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    trained = ", ".join(f"{task} 1 .. {longest}" for task, longest in TRAIN_LENGTHS.items())
    steps = ", ".join(f"{scale.steps * BUDGETS[task]} ({task})" for task in TRAIN_LENGTHS)
    return [
        f"Models: one layer (two for variable assignment), width {scale.width}, {scale.heads} heads; {steps} "
        f"steps of {scale.batch} fresh samples with Adam; {scale.seeds} seeds. Lengths in training: {trained}.",
        f"Exact: every token of the greedily decoded response is right, and, where ids are predicted, every id; "
        f"over {scale.samples} samples for each seed and length. The interval is the exact binomial one given these "
        "models.",
        f"Ids are rows of a learned table of {scale.table}, added to the embedding. Rotary positions count tokens.",
        "The pointing head, the ids of variable assignment, and all sizes are ours.",
    ]
