"""Sparse parity: one cell for each largest k in training and locality; tested by length and by k."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

from lengthwise.report.drawing import Picture
from lengthwise_studies.claims import Claim
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity import grid, planted
from lengthwise_studies.sparsity.grid import LEARNED, Case, Outcome, Share, by_cases
from lengthwise_studies.synthetic.training import CellScale

KS = (4, 6, 8, 10, 12)
CHANCE = 0.5
REACH = 4
"""The longest test length in units of L."""


@dataclass(frozen=True, kw_only=True)
class ParityScale(CellScale):
    """How large the study is.

    `train_length` is L. `local` is the width that planted positions lie within, where they are local. `train_ks` are
    the largest k in training, one model each; k is uniform on 1 .. this.
    """

    steps: int = 1600
    batch: int = 32
    samples: int = 128
    width: int = 32
    train_length: int = 32
    local: int = 16
    train_ks: tuple[int, ...] = KS
    test_ks: tuple[int, ...] = KS
    layers: int = 2

    @property
    def train_lengths(self) -> range:
        """L/2 .. L."""
        return range(math.ceil(self.train_length / 2), self.train_length + 1)

    @property
    def test_lengths(self) -> tuple[int, ...]:
        """L/2, L, 3L/2, and multiples of L up to the reach."""
        longest = self.train_length
        beyond = range(2 * longest, REACH * longest + 1, longest)
        return (self.train_lengths[0], longest, 3 * longest // 2, *beyond)


_SMALL = {"steps": 6, "batch": 4, "samples": 8, "width": 8, "layers": 1, "heads": 2}
SCALES: dict[str, ParityScale] = {
    "default": ParityScale(),
    "laptop": ParityScale(seeds=3),
    "smoke": ParityScale(seeds=2, train_length=16, local=4, train_ks=(2, 4), test_ks=(2, 4), **_SMALL),
}


@dataclass(frozen=True)
class ParityCell:
    """The largest k in training, and whether planted positions lie within the scale's width, or anywhere."""

    k: int
    local: bool

    @property
    def where(self) -> str:
        """The name of the law."""
        return "local" if self.local else "anywhere"

    @property
    def key(self) -> str:
        """The last word is the encoding of positions."""
        return f"k up to {self.k}, {self.where}, none"

    def law(self, scale: ParityScale) -> planted.Within:
        """Of the planted positions."""
        return planted.Within(scale.local) if self.local else planted.ANYWHERE

    def tested(self, scale: ParityScale) -> list[int]:
        """The tested k that it was trained on."""
        return [k for k in scale.test_ks if k <= self.k]


Outcomes = Mapping[ParityCell, Outcome]


def cells_of(scale: ParityScale) -> list[ParityCell]:
    """Every largest k with and without locality."""
    return [ParityCell(k, local) for k, local in product(scale.train_ks, (False, True))]


def run_cell(cell: ParityCell, scale: ParityScale) -> Outcome:
    """Train on every length and k, test by both."""
    law, ks, seeds = cell.law(scale), range(1, cell.k + 1), range(scale.seeds)
    return grid.run_stack(
        scale,
        planted.planted_batches(
            law, lengths=scale.train_lengths, ks=ks, size=scale.batch, steps=scale.steps, seeds=seeds
        ),
        planted.label_losses,
        # The seed is of length and k alone: cells of one law meet the same samples.
        lambda model: [
            (
                f"k = {k}",
                length,
                planted.right_labels(
                    model, law, length=length, k=k, samples=scale.samples, seed=1000 * length + k
                ),
            )
            for k in scale.test_ks
            for length in scale.test_lengths
        ],
        steps=scale.steps,
        rate=2e-3,
        vocabulary=planted.SYMBOLS,
        value=True,
        layers=scale.layers,
    )


def names(cell: ParityCell, what: str) -> tuple[str, str]:
    """Task and metric: accuracy by k, or the training loss."""
    if not what:
        return "sparse parity", "train_loss"
    return f"sparse parity, {what}", "accuracy"


def notes(scale: ParityScale) -> list[str]:
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


@dataclass(frozen=True)
class Accuracies:
    """The right answers of all cells at a scale. Claims are decided on those that learned their training range."""

    scale: ParityScale
    outcomes: Outcomes

    def at(self, cell: ParityCell, *lengths: int, k: int | None = None) -> Share:
        """Pooled over these lengths, with k planted tokens; None: all tested k that the cell was trained on."""
        places = product(cell.tested(self.scale) if k is None else (k,), lengths)
        return grid.share(self.outcomes[cell], *((f"k = {k}", length) for k, length in places))

    def inside(self, cell: ParityCell) -> float:
        """In training range."""
        return self.at(cell, self.scale.train_lengths[0], self.scale.train_length).value

    @property
    def trained(self) -> list[ParityCell]:
        """The cells that learned their training range."""
        return [cell for cell in self.outcomes if self.inside(cell) >= LEARNED]


def _keeps(factor: int, numbers: Accuracies) -> Iterator[Case]:
    """Over half of what is above chance in range is left at so many times L."""
    for cell in numbers.outcomes:
        inside, learned = numbers.inside(cell), cell in numbers.trained
        at = grid.over_seeds(numbers.at(cell, factor * numbers.scale.train_length).seeds)
        words = f"{cell.key}: {inside:.2f} in range, {at.text}" if learned else ""
        yield Case(words, at, (inside + CHANCE) / 2, counts=learned)


def _kept(holding: int, failing: int, tried: int, every: int) -> str:
    others = f"; {every - tried} not trained" if every > tried else ""
    return grid.decision(holding, failing, tried) + others


def _falls(numbers: Accuracies) -> Iterator[Case]:
    """The smallest tested k is better at 2L than the largest in training."""
    twice = 2 * numbers.scale.train_length
    for cell in numbers.trained:
        few, many = cell.tested(numbers.scale)[0], cell.tested(numbers.scale)[-1]
        if few < many:
            lost = grid.difference(*(numbers.at(cell, twice, k=k) for k in (many, few)))
            yield Case(f"{cell.key}: k = {many} minus k = {few} {lost.text}", lost, lower=True)


def _beyond_k(numbers: Accuracies) -> Iterator[Case]:
    """Nearer to chance than to right at the largest tested k, at length L."""
    largest = numbers.scale.test_ks[-1]
    for cell in numbers.trained:
        if largest > cell.k:
            one = grid.over_seeds(numbers.at(cell, numbers.scale.train_length, k=largest).seeds)
            yield Case(f"{cell.key}: k = {largest} {one.text}", one, (1 + CHANCE) / 2, lower=True)


def _locality(numbers: Accuracies) -> Iterator[Case]:
    """Local against anywhere at 2L, where both are trained."""
    for k in numbers.scale.train_ks:
        pair = [ParityCell(k, local) for local in (True, False)]
        if set(pair) <= set(numbers.trained):
            gained = grid.difference(*(numbers.at(cell, 2 * numbers.scale.train_length) for cell in pair))
            yield Case(f"k up to {k}: local minus anywhere {gained.text}", gained)


_drawn = partial(Claim, place="sparse parity, figure", paper="drawn, no number found")
_KEEPS = "the interval of the accuracy lies above the middle of chance and the accuracy in range"
_FALLS = "the accuracy at the largest tested k in training minus that at the smallest lies below 0"
_BEYOND_K = "at length L and the largest tested k, the interval lies below 3/4"
CLAIMS = (
    *(
        _drawn(
            says=f"with few planted tokens accuracy holds at {factor} times the training length",
            test=by_cases(_KEEPS, partial(_keeps, factor), _kept),
        )
        for factor in (2, REACH)
    ),
    _drawn(says="at twice the training length accuracy falls as k grows", test=by_cases(_FALLS, _falls)),
    _drawn(says="models fail at a k beyond training", test=by_cases(_BEYOND_K, _beyond_k)),
    Claim(
        place="Theorem 4.3, locality",
        says="local planted tokens generalize to longer samples, others need not",
        paper="the bound needs locality",
        test=by_cases(
            "better or worse: at 2L the interval of local minus anywhere leaves out 0",
            _locality,
            "local better at {0} of {2}, worse at {1}".format,
        ),
    ),
)


def accuracy_picture(scale: ParityScale, found: Outcomes, where: str) -> Picture | None:
    """One panel for each tested k, one curve for each largest k in training."""
    panels = {k: f"k = {k}" for k in scale.test_ks}
    return grid.share_picture(
        (
            (panel, f"trained on k up to {cell.k}", one, f"k = {k}")
            for cell, one in found.items()
            for k, panel in panels.items()
            if cell.where == where
        ),
        dict.fromkeys(panels.values(), scale.test_lengths),
        dict.fromkeys(panels.values(), (scale.train_lengths[0], scale.train_length)),
        name=f"sparse-parity-{where}",
        title=f"Sparse parity, planted tokens {'close together' if where == 'local' else where}",
        across="test length (tokens)",
        up="accuracy",
        caption="Line: chance.",
        levels=[CHANCE],
    )


GRID = grid.counted(
    names,
    kind="sparse-parity",
    scale=ParityScale,
    cells=cells_of,
    work=run_cell,
    notes=notes,
    claims=lambda scale: CLAIMS,
    numbers=Accuracies,
    reading=[
        f"A model counts as trained if its accuracy in training range, over the tested k within training, is at "
        f"least {LEARNED}.",
        "Intervals of the claims are Student's over seeds, of differences paired by seed.",
    ],
    pictures=lambda scale, found: (accuracy_picture(scale, found, where) for where in ("anywhere", "local")),
    title="Sparse parity by length and k",
    question="The label is the parity of k bits among symbols that mean nothing. Does what is learned on short "
    "samples hold on longer ones, by how many bits matter?",
)
SPARSE_PARITY = Study(
    title="Sparse parity: length generalization by the number of tokens that matter",
    parts=(GRID.part(SCALES),),
    takes=("seeds", "steps"),
)
