"""Sparse parity: one cell for each largest k in training, locality and encoding; tested by length and by k."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from itertools import product

from lengthwise.errors import UsageError
from lengthwise.results import Row
from lengthwise_studies.sparsity.planted import Anywhere, PlantedCorrelations, Within, sparse_parity
from lengthwise_studies.sparsity.planted_training import label_losses, planted_batches, right_labels
from lengthwise_studies.sparsity.shares import OPTIMIZER, Outcome, final, loss_rows, share, share_row
from lengthwise_studies.synthetic.training import one_thread, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

TRAIN_KS = (4, 6, 8, 10, 12)
RATE = 2e-3


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the study is.

    Args:
        seeds: models of each cell.
        steps: training steps.
        batch: samples a step and model.
        train_length: L; lengths in training are uniform on L/2 .. L.
        local: the width that planted positions lie within, where they are local.
        train_ks: the largest k in training, one model each; k is uniform on 1 .. this.
        test_ks: k at test.
        reach: the longest test length in units of L.
        samples: test samples for each model, length and k.
        width, layers, heads: of every model; the inner layer is four times as wide.
    """

    seeds: int = 5
    steps: int = 1600
    batch: int = 32
    train_length: int = 32
    local: int = 16
    train_ks: tuple[int, ...] = TRAIN_KS
    test_ks: tuple[int, ...] = TRAIN_KS
    reach: int = 4
    samples: int = 128
    width: int = 32
    layers: int = 2
    heads: int = 4

    @property
    def train_lengths(self) -> range:
        """L/2 .. L."""
        return range(math.ceil(self.train_length / 2), self.train_length + 1)

    @property
    def test_lengths(self) -> tuple[int, ...]:
        """L/2, L, 3L/2, and multiples of L up to the reach."""
        longest = self.train_length
        return (
            self.train_lengths[0],
            longest,
            3 * longest // 2,
            *range(2 * longest, self.reach * longest + 1, longest),
        )


SCALES: dict[str, Scale] = {
    "default": Scale(),
    "laptop": Scale(seeds=3),
    "smoke": Scale(
        seeds=2,
        steps=6,
        batch=4,
        train_length=16,
        local=4,
        train_ks=(2, 4),
        test_ks=(2, 4),
        samples=8,
        width=8,
        layers=1,
        heads=2,
    ),
}


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained from several seeds at once.

    Args:
        k: the largest in training.
        local: planted positions lie within the scale's width; else they are anywhere.
        encoding: a name of `encodings.ENCODINGS`.
    """

    k: int
    local: bool
    encoding: str = "none"

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        return f"k up to {self.k}, {'local' if self.local else 'anywhere'}, {self.encoding}"


def cells_of(scale: Scale) -> list[Cell]:
    """Every largest k with and without locality."""
    return [Cell(k=k, local=local) for k, local in product(scale.train_ks, (False, True))]


def law_of(cell: Cell, scale: Scale) -> PlantedCorrelations:
    """The data model of a cell."""
    return sparse_parity(Within(scale.local) if cell.local else Anywhere())


def place(k: int, length: int) -> str:
    """The key of a test in an outcome."""
    return f"k={k}, length={length}"


def check(cell: Cell, scale: Scale) -> None:
    """Refuse what cannot run, before anything is trained.

    Raises:
        UsageError: a k of training or test above the shortest length or, where positions are local, the width.
    """
    largest, room = max(cell.k, *scale.test_ks), scale.train_lengths[0]
    if cell.local:
        room = min(room, scale.local)
    if largest > room:
        raise UsageError(f"k is {largest} where {room} positions can be planted", expected="k at most that")


@one_thread()
def run_cell(cell: Cell, scale: Scale) -> Outcome:
    """Train every seed, test at every length and k."""
    started, law, seeds = time.perf_counter(), law_of(cell, scale), list(range(scale.seeds))
    model = StackedTransformer(
        Architecture(
            vocabulary=law.vocabulary + 2,
            encoding=cell.encoding,
            value=True,
            width=scale.width,
            layers=scale.layers,
            heads=scale.heads,
            hidden=4 * scale.width,
        ),
        seeds,
    )
    drawn = planted_batches(
        law,
        lengths=scale.train_lengths,
        ks=range(1, cell.k + 1),
        size=scale.batch,
        steps=scale.steps,
        seeds=seeds,
    )
    losses = list(
        train(model, drawn, OPTIMIZER, count=scale.steps, rates=[RATE] * scale.seeds, losses=label_losses)
    )
    right = {
        # By length and k alone: cells of one law meet the same samples.
        place(k, length): right_labels(
            model, law, length=length, k=k, samples=scale.samples, seed=1000 * length + k
        ).tolist()
        for k in scale.test_ks
        for length in scale.test_lengths
    }
    return Outcome(
        train_loss=final(losses),
        samples=scale.samples,
        right=right,
        seconds=time.perf_counter() - started,
    )


def cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """Accuracy by length and k with binomial intervals, and the training loss by seed."""
    rows = loss_rows(cell, "sparse parity", outcome)
    for tested in outcome.right:
        k, length = (int(part.split("=")[1]) for part in tested.split(", "))
        rows.append(
            share_row(cell, f"sparse parity, k = {k}", "accuracy", share(outcome, tested), length=length)
        )
    return rows


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads, no position encoding; "
        f"{scale.steps} steps of {scale.batch} fresh samples with Adam; {scale.seeds} seeds.",
        f"Training: lengths uniform on {scale.train_lengths[0]} .. {scale.train_length}, k uniform on 1 .. its "
        f"largest. Local: the planted positions lie within {scale.local} neighbouring ones.",
        f"Accuracy is over {scale.samples} samples for each seed, length and k, pooled over seeds; the interval is "
        "the exact binomial one given these models. Chance is 1/2.",
        "The paper's alphabet, lengths, architecture, encoding and budget were not found; all are ours.",
    ]
