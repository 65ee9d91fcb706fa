"""Cells (one configuration each, at a scale): their models are trained as one stack and tested at every length."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise_studies.section3.number_alignment import (
    AlignedLosses,
    aligned_batches,
    alignment_named,
    model_disagreements,
)
from lengthwise_studies.synthetic.encodings import check_length
from lengthwise_studies.synthetic.optimizers import optimizer_named
from lengthwise_studies.synthetic.reparameterization import Reparameterization, reparameterization
from lengthwise_studies.synthetic.tasks import VOCABULARY, BitTask, bit_task
from lengthwise_studies.synthetic.training import (
    batches,
    final_losses,
    one_thread,
    predictions,
    train,
    value_losses,
)
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

CEILING = 10
"""Predictions mapped back through the inverse of f are clamped to this many times the longest test length."""
_CURVE_POINTS = 60


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained from several seeds at once; names are those of the tables of `synthetic`.

    Args:
        function: the output reparameterization; trained on function(y + shift).
        train_length: lengths in training are uniform on 1 .. this.
        alignment: the long-short alignment trained with, a name of `number_alignment.ALIGNMENTS`; None for none.
        weight: its alpha, 0 without.
    """

    task: str
    encoding: str = "none"
    function: str = "identity"
    shift: int = 0
    train_length: int = 10
    optimizer: str = "adam"
    alignment: str | None = None
    weight: float = 0.0

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        shifted = f"(y+{self.shift})" if self.shift else ""
        aligned = f", aligned by {self.alignment} {self.weight:g}" if self.alignment else ""
        return (
            f"{self.task}, {self.encoding}, {self.function}{shifted}, 1..{self.train_length}, "
            f"{self.optimizer}{aligned}"
        )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large a sweep is.

    Args:
        name: the key in its table.
        seeds: models of each cell.
        steps: training steps; an optimizer may take a multiple of them.
        batch: samples a step and model.
        test_length: tested at every length 1 .. this.
        samples: test strings for each length, the same for all models.
        width, layers, heads: of every model; the inner layer is four times as wide.
        table: positions of encodings that have a table.
    """

    name: str
    seeds: int
    steps: int
    batch: int
    test_length: int
    samples: int
    width: int = 16
    layers: int = 2
    heads: int = 4
    table: int = 128

    def architecture(self, encoding: str) -> Architecture:
        """The model: it reads bits and predicts one number."""
        return Architecture(
            vocabulary=VOCABULARY,
            encoding=encoding,
            table=self.table,
            value=True,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            hidden=4 * self.width,
        )


_SMALL = {"width": 8, "layers": 1, "heads": 2}
SCALES: dict[str, Scale] = {
    "default": Scale(name="default", seeds=5, steps=3000, batch=16, test_length=50, samples=256),
    "smoke": Scale(name="smoke", seeds=2, steps=20, batch=8, test_length=12, samples=8, **_SMALL),
}

Number = float | None
"""None for a model that diverged."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell gave, by seed: plain numbers, which JSON keeps whole."""

    rate: float
    """The learning rate that was kept: the best median training loss."""
    rates: dict[str, Number]
    """Median final training loss of every rate tried."""
    steps: list[int]
    """Steps of the training curve."""
    curve: list[list[Number]]
    """[seed][point] training loss in units of f, each point the mean since the one before."""
    train_loss: list[Number]
    """[seed] mean training loss over the last steps, in units of f."""
    lengths: list[int]
    mse: list[list[Number]]
    """[seed][length] test error in original units."""
    mse_transformed: list[list[Number]]
    """[seed][length] test error in units of f."""
    clamped: list[list[float]]
    """[seed][length] share of predictions that had to be clamped before f could be inverted."""
    seconds: float
    disagreement: dict[str, list[Number]] = field(default_factory=dict)
    """[seed] how far predictions from strings of training length and from their ends differ, for each
    reading of alignment, in squared units of f."""

    def to_dict(self) -> dict[str, Any]:
        """The record of a sample log."""
        return asdict(self)


def check(cell: Cell, scale: Scale) -> None:
    """Refuse a cell that cannot run, before anything is trained.

    Raises:
        UsageError: unknown names; a function undefined on a task's outcomes; lengths beyond an
            encoding's table; no seeds or steps.
    """
    counts = [(name, getattr(scale, name)) for name in ("seeds", "steps", "test_length")]
    for name, value in [*counts, ("train_length", cell.train_length)]:
        if value < 1:
            raise UsageError(f"{name} is {value}", expected="1 or more")
    reparameterization(cell.function, bit_task(cell.task), shift=cell.shift)
    optimizer_named(cell.optimizer)
    longest = scale.architecture(cell.encoding).build_encoding().longest
    check_length(cell.encoding, longest, max(scale.test_length, cell.train_length) + 2)
    if cell.alignment is None:
        if cell.weight:
            raise UsageError(f"a weight of {cell.weight:g} without alignment", expected="weight=0")
        return
    alignment_named(cell.alignment)
    if not cell.weight > 0:
        raise UsageError(f"alignment with a weight of {cell.weight:g}", expected="more than 0")
    if cell.train_length < 2:
        raise UsageError("alignment on strings of one bit", expected="train_length of 2 or more")


@one_thread()
def run_cell(cell: Cell, scale: Scale) -> Outcome:
    """Train every seed at every learning rate, keep the rate that fits best, test at every length.

    Raises:
        UsageError: see `check`.
    """
    check(cell, scale)
    started = time.perf_counter()
    task, optimizer = bit_task(cell.task), optimizer_named(cell.optimizer)
    function = reparameterization(cell.function, task, shift=cell.shift)
    steps, rates = scale.steps * optimizer.budget, optimizer.rates
    seeds = list(range(scale.seeds))
    model = StackedTransformer(scale.architecture(cell.encoding), seeds * len(rates))
    sampling = {"longest": cell.train_length, "seeds": seeds * len(rates)}
    own = batches(task, function, model.encoding, size=scale.batch, steps=steps, **sampling)
    drawn: Iterable[Any] = own
    losses: Any = value_losses
    both = None
    if cell.alignment is not None:
        alignment = alignment_named(cell.alignment)
        drawn = aligned_batches(own, alignment, task, model.encoding, **sampling)
        losses = both = AlignedLosses(alignment, cell.weight)
    each = [rate for rate in rates for _ in seeds]
    trained = list(train(model, drawn, optimizer, count=steps, rates=each, losses=losses))
    # The error alone, by which cells with and without alignment are compared.
    errors = torch.stack(trained if both is None else both.errors)
    final = final_losses(errors).view(len(rates), -1)
    # A diverged model fits worst.
    by_rate = [median(row) for row in final.nan_to_num(nan=math.inf, posinf=math.inf).tolist()]
    best = min(range(len(by_rate)), key=by_rate.__getitem__)
    kept = [best * scale.seeds + seed for seed in seeds]
    stretches = errors[:, kept].split(max(1, math.ceil(steps / _CURVE_POINTS)))
    model = model.keep(kept)
    tested = _test(model, task, function, scale)
    apart = model_disagreements(model, task, longest=cell.train_length)
    return Outcome(
        rate=rates[best],
        rates={f"{rate:g}": _number(loss) for rate, loss in zip(rates, by_rate, strict=True)},
        steps=torch.tensor([len(stretch) for stretch in stretches]).cumsum(0).tolist(),
        curve=_by_seed([stretch.mean(0) for stretch in stretches]),
        train_loss=_numbers(final[best]),
        seconds=time.perf_counter() - started,
        disagreement={name: _numbers(distances) for name, distances in apart.items()},
        **tested,
    )


def _test(
    model: StackedTransformer, task: BitTask, function: Reparameterization, scale: Scale
) -> dict[str, Any]:
    lowest = float(task.outcomes(1).values.min())
    lengths = list(range(1, scale.test_length + 1))
    columns: dict[str, list[Tensor]] = {"mse": [], "mse_transformed": [], "clamped": []}
    for length in lengths:
        # By length alone: every model of every cell meets the same strings.
        generator = torch.Generator().manual_seed(length)
        of = torch.full((scale.samples,), length)
        bits = task.draw(of, length, generator)
        outcome = task.outcome(bits, of)
        z = predictions(model, bits, length, generator)
        y, clamped = function.invert(z, lowest=lowest, highest=float(CEILING * scale.test_length))
        columns["mse"].append((y - outcome).square().mean(1))
        columns["mse_transformed"].append((z - function.apply(outcome)).square().mean(1))
        columns["clamped"].append(clamped.float().mean(1))
    return {"lengths": lengths, **{name: _by_seed(column) for name, column in columns.items()}}


def _by_seed(columns: Sequence[Tensor]) -> list[list[Number]]:
    """Numbers [seed][column] of columns [S]."""
    return [_numbers(row) for row in torch.stack(list(columns), dim=1)]


def _numbers(values: Tensor) -> list[Number]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> Number:
    return value if math.isfinite(value) else None
