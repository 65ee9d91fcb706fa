"""Sparse parity: one cell for each largest k in training and locality; tested by length and by k."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

from lengthwise.errors import UsageError
from lengthwise.report.drawing import Picture
from lengthwise.report.html import Section
from lengthwise.report.tables import Table
from lengthwise_studies.cell_runs import Grid
from lengthwise_studies.claims import Claim, Decision, Rule, judge, verdict_table
from lengthwise_studies.skeleton import Study
from lengthwise_studies.sparsity import planted
from lengthwise_studies.sparsity.grid import LEARNED, GridScale, run_stack, share_picture, share_rows
from lengthwise_studies.sparsity.shares import (
    Case,
    Outcome,
    Share,
    case,
    difference,
    over_seeds,
    place,
    pooled,
    share,
    verdict_on,
)
from lengthwise_studies.synthetic.transformer import StackedTransformer

KS = (4, 6, 8, 10, 12)
CHANCE = 0.5


@dataclass(frozen=True, kw_only=True)
class ParityScale(GridScale):
    """How large the study is, besides what `GridScale` has.

    Args:
        train_length: L; lengths in training are uniform on L/2 .. L.
        local: the width that planted positions lie within, where they are local.
        train_ks: the largest k in training, one model each; k is uniform on 1 .. this.
        test_ks: k at test.
        reach: the longest test length in units of L.
        layers: of every model.
    """

    steps: int = 1600
    samples: int = 128
    width: int = 32
    train_length: int = 32
    local: int = 16
    train_ks: tuple[int, ...] = KS
    test_ks: tuple[int, ...] = KS
    reach: int = 4
    layers: int = 2

    @property
    def train_lengths(self) -> range:
        """L/2 .. L."""
        return range(math.ceil(self.train_length / 2), self.train_length + 1)

    @property
    def test_lengths(self) -> tuple[int, ...]:
        """L/2, L, 3L/2, and multiples of L up to the reach."""
        longest = self.train_length
        beyond = range(2 * longest, self.reach * longest + 1, longest)
        return (self.train_lengths[0], longest, 3 * longest // 2, *beyond)


SCALES: dict[str, ParityScale] = {
    "default": ParityScale(),
    "laptop": ParityScale(seeds=3),
    "smoke": ParityScale(
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


def of_k(k: int) -> str:
    """What a test is called in an outcome."""
    return f"k={k}"


@dataclass(frozen=True)
class ParityCell:
    """The largest k in training, and whether planted positions lie within the scale's width, or anywhere."""

    k: int
    local: bool

    @property
    def key(self) -> str:
        """The last word is the encoding of positions."""
        return f"k up to {self.k}, {'local' if self.local else 'anywhere'}, none"

    def law(self, scale: ParityScale) -> planted.PositionLaw:
        """Of the planted positions."""
        return planted.Within(scale.local) if self.local else planted.Anywhere()

    def tested(self, scale: ParityScale) -> list[int]:
        """The tested k that it was trained on."""
        return [k for k in scale.test_ks if k <= self.k]


def check(cell: ParityCell, scale: ParityScale) -> None:
    """Refuse a k above the shortest length or, where positions are local, the width."""
    largest, room = max(cell.k, *scale.test_ks), scale.train_lengths[0]
    if cell.local:
        room = min(room, scale.local)
    if largest > room:
        raise UsageError(f"k is {largest} where {room} positions can be planted", expected="k at most that")


def run_cell(cell: ParityCell, scale: ParityScale) -> Outcome:
    """Train on every length and k, test by both."""
    law = cell.law(scale)

    def test(model: StackedTransformer) -> dict[str, list[int]]:
        # The seed is of length and k alone: cells of one law meet the same samples.
        return {
            place(of_k(k), length): planted.right_labels(
                model, law, length=length, k=k, samples=scale.samples, seed=1000 * length + k
            )
            for k in scale.test_ks
            for length in scale.test_lengths
        }

    batches = planted.planted_batches(
        law,
        lengths=scale.train_lengths,
        ks=range(1, cell.k + 1),
        size=scale.batch,
        steps=scale.steps,
        seeds=range(scale.seeds),
    )
    return run_stack(
        scale,
        batches,
        planted.label_losses,
        test,
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
    return f"sparse parity, {what.replace('=', ' = ')}", "accuracy"


Found = Mapping[ParityCell, Outcome]


def cells_of(scale: ParityScale) -> list[ParityCell]:
    """Every largest k with and without locality."""
    return [ParityCell(k, local) for k, local in product(scale.train_ks, (False, True))]


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


def over(cell: ParityCell, found: Found, scale: ParityScale, *lengths: int) -> Share:
    """Accuracy pooled over these lengths and the tested k that the cell was trained on."""
    return pooled(found[cell], [place(of_k(k), length) for k in cell.tested(scale) for length in lengths])


def trained(found: Found, scale: ParityScale) -> dict[ParityCell, Share]:
    """The cells that learned their training range, with the accuracy in it."""
    inside = {cell: over(cell, found, scale, scale.train_lengths[0], scale.train_length) for cell in found}
    return {cell: one for cell, one in inside.items() if one.value >= LEARNED}


def _keeps(scale: ParityScale, factor: int, found: Found) -> Decision:
    """Over half of what is above chance in range is left at so many times L."""
    cases: list[Case] = []
    for cell, inside in trained(found, scale).items():
        at = over_seeds(over(cell, found, scale, factor * scale.train_length).seeds)
        words = f"{cell.key}: {inside.value:.2f} in range, {at.text}"
        cases.append(case(words, at, (inside.value + CHANCE) / 2))
    others = f"; {len(found) - len(cases)} not trained" if len(found) > len(cases) > 0 else ""
    ours, said = verdict_on(cases)
    return ours, said + others


def _falls(scale: ParityScale, found: Found) -> Decision:
    """The smallest tested k is better at 2L than the largest in training."""
    cases: list[Case] = []
    for cell in trained(found, scale):
        few, many = cell.tested(scale)[0], cell.tested(scale)[-1]
        if few < many:
            at = [share(found[cell], of_k(k), 2 * scale.train_length) for k in (many, few)]
            lost = difference(*at)
            cases.append(case(f"{cell.key}: k = {many} minus k = {few} {lost.text}", lost, lower=True))
    return verdict_on(cases)


def _beyond_k(scale: ParityScale, found: Found) -> Decision:
    """Nearer to chance than to right at the largest tested k, at length L."""
    cases: list[Case] = []
    largest = scale.test_ks[-1]
    for cell in trained(found, scale):
        if largest > cell.k:
            one = over_seeds(share(found[cell], of_k(largest), scale.train_length).seeds)
            cases.append(case(f"{cell.key}: k = {largest} {one.text}", one, (1 + CHANCE) / 2, lower=True))
    return verdict_on(cases)


def _locality(scale: ParityScale, found: Found) -> Decision:
    """Local against anywhere at 2L, where both are trained."""
    cases: list[Case] = []
    fitting = trained(found, scale)
    for k in scale.train_ks:
        pair = [ParityCell(k, local) for local in (True, False)]
        if all(cell in fitting for cell in pair):
            gained = difference(*(over(cell, found, scale, 2 * scale.train_length) for cell in pair))
            cases.append(case(f"k up to {k}: local minus anywhere {gained.text}", gained))
    return verdict_on(cases, "local better at {0} of {2}, worse at {1}".format)


def claims(scale: ParityScale) -> tuple[Claim, ...]:
    """What the paper says of sparse parity; each is decided on the cells that learned their training range."""
    figure = {"place": "sparse parity, figure", "paper": "drawn, no number found"}
    return (
        *(
            Claim(
                **figure,
                says=f"with few planted tokens accuracy holds at {factor} times the training length",
                test=Rule(
                    "the interval of the accuracy lies above the middle of chance and the accuracy in range",
                    partial(_keeps, scale, factor),
                ),
            )
            for factor in (2, scale.reach)
        ),
        Claim(
            **figure,
            says="at twice the training length accuracy falls as k grows",
            test=Rule(
                "the accuracy at the largest tested k in training minus that at the smallest lies below 0",
                partial(_falls, scale),
            ),
        ),
        Claim(
            **figure,
            says="models fail at a k beyond training",
            test=Rule(
                "at length L and the largest tested k, the interval lies below 3/4", partial(_beyond_k, scale)
            ),
        ),
        Claim(
            place="Theorem 4.3, locality",
            says="local planted tokens generalize to longer samples, others need not",
            paper="the bound needs locality",
            test=Rule(
                "better or worse: at 2L the interval of local minus anywhere leaves out 0",
                partial(_locality, scale),
            ),
        ),
    )


def page(scale: ParityScale, found: Found) -> list[Section]:
    """Claims, the table, and a picture with and one without locality."""
    table = verdict_table(
        judge(claims(scale), found),
        ours="ours, mean over seeds [95 %]",
        notes=[
            f"A model counts as trained if its accuracy in training range, over the tested k within training, is at "
            f"least {LEARNED}.",
            "Intervals of the claims are Student's over seeds, of differences paired by seed.",
        ],
    )
    lengths = scale.test_lengths
    accuracy = Table(
        columns=["trained on", "tested k", *(f"at {length}" for length in lengths)],
        rows=[
            [cell.key, k, *(share(one, of_k(k), length).estimate.text for length in lengths)]
            for cell, one in found.items()
            for k in cell.tested(scale)
        ],
        caption="Accuracy by length, pooled over seeds [95 %]; chance is 0.5",
    )
    return [
        Section(
            title="Sparse parity by length and k",
            paragraphs=[
                "The label is the parity of k bits among symbols that mean nothing. Does what is learned on short "
                "samples hold on longer ones, by how many bits matter?"
            ],
            tables=[table, accuracy],
            figures=[one for local in (False, True) for one in accuracy_picture(scale, found, local=local)],
        )
    ]


def accuracy_picture(scale: ParityScale, found: Found, *, local: bool) -> list[Picture]:
    """One panel for each tested k, one curve for each largest k in training."""
    lengths = scale.test_lengths
    where = ("local", "close together") if local else ("anywhere", "anywhere")
    return share_picture(
        (
            (
                f"k = {k}",
                f"trained on k up to {cell.k}",
                lengths,
                [share(one, of_k(k), length) for length in lengths],
            )
            for cell, one in found.items()
            for k in scale.test_ks
            if cell.local == local
        ),
        {f"k = {k}": (scale.train_lengths[0], scale.train_length) for k in scale.test_ks},
        name=f"sparse-parity-{where[0]}",
        title=f"Sparse parity, planted tokens {where[1]}",
        across="test length (tokens)",
        up="accuracy",
        caption="Line: chance.",
        levels=[CHANCE],
    )


GRID = Grid(
    kind="sparse-parity",
    scale=ParityScale,
    cells=cells_of,
    check=check,
    work=run_cell,
    outcome=Outcome,
    rows=partial(share_rows, names),
    notes=notes,
    page=page,
)
SPARSE_PARITY = Study(
    title="Sparse parity: length generalization by the number of tokens that matter",
    parts=(GRID.part(SCALES),),
    takes=("seeds", "steps"),
)
