"""Cells (one configuration each, at a scale): their models are trained as one stack and tested at every length."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from lengthwise_studies.synthetic import reparameterization, training
from lengthwise_studies.synthetic.tasks import BIT_TASKS, VOCABULARY, BitTask
from lengthwise_studies.synthetic.training import OPTIMIZERS, CellScale
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

CEILING = 10
"""Predictions mapped back through the inverse of f are clamped to this many times the longest test length."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One configuration, trained from several seeds at once; names are those of the tables of `synthetic`.

    Args:
        function: the output reparameterization; trained on function(y + shift).
        train_length: lengths in training are uniform on 1 .. this.
    """

    task: str
    encoding: str = "none"
    function: str = "identity"
    shift: int = 0
    train_length: int = 10
    optimizer: str = "adam"

    @property
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""
        function = f"{self.function}(y+{self.shift})" if self.shift else self.function
        return f"{self.task}, {self.encoding}, {function}, 1..{self.train_length}, {self.optimizer}"

    @property
    def of(self) -> BitTask:
        """The task itself."""
        return BIT_TASKS[self.task]

    @property
    def f(self) -> reparameterization.Reparameterization:
        """What the outcomes are mapped by in training."""
        return reparameterization.reparameterization(self.function, self.of, shift=self.shift)

    def constant_errors(self, lengths: Iterable[int], *, transformed: bool = False) -> list[float]:
        """Errors by length of the best constant, in original units or in those of f."""
        error = partial(reparameterization.constant_error, self.of, self.f, train_length=self.train_length)
        return [error(length=length)[transformed] for length in lengths]


@dataclass(frozen=True, kw_only=True)
class Scale(CellScale):
    """How large a sweep is.

    Args:
        test_length: tested at every length 1 .. this, on the same strings for all models.
        layers: of every model.
        table: positions of encodings that have a table.
        optimizers: that are run, of those of a panel.
    """

    test_length: int
    width: int = 16
    layers: int = 2
    table: int = 128
    optimizers: tuple[str, ...] = tuple(OPTIMIZERS)

    def architecture(self, encoding: str) -> Architecture:
        """The model: it reads bits and predicts one number."""
        body: Any = {"width": self.width, "layers": self.layers, "heads": self.heads}
        body |= {"hidden": 4 * self.width, "encoding": encoding, "table": self.table}
        return Architecture(vocabulary=VOCABULARY, value=True, **body)


SCALES: dict[str, Scale] = {
    "default": Scale(seeds=5, steps=3000, batch=16, test_length=50, samples=256),
    "smoke": Scale(seeds=2, steps=20, batch=8, test_length=12, samples=8, width=8, layers=1, heads=2),
}

Number = float | None
"""None for a model that diverged."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a cell gave, by seed: plain numbers, which JSON keeps whole."""

    rate: float
    """The learning rate that was kept: the best median training loss."""
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


@training.one_thread()
def run_cell(cell: Cell, scale: Scale) -> Outcome:
    """Train every seed at every learning rate, keep the rate that fits best, test at every length."""
    started = time.perf_counter()
    task, optimizer = cell.of, OPTIMIZERS[cell.optimizer]
    steps, rates, seeds = scale.steps * optimizer.budget, optimizer.rates, list(range(scale.seeds))
    model = StackedTransformer(scale.architecture(cell.encoding), seeds * len(rates))
    sampling: dict[str, Any] = {"longest": cell.train_length, "seeds": seeds * len(rates)}
    drawn = training.batches(task, cell.f, model.encoding, size=scale.batch, steps=steps, **sampling)
    taken: list[Tensor] = []

    def losses(model: StackedTransformer, batch: Any) -> Tensor:
        loss = training.value_losses(model, batch)
        taken.append(loss.detach())
        return loss

    each = [rate for rate in rates for _ in seeds]
    for _ in training.train(model, drawn, optimizer, count=steps, rates=each, losses=losses):
        pass
    errors = torch.stack(taken)
    final = training.final_losses(errors).view(len(rates), -1)
    # A diverged model fits worst.
    by_rate = [median(row) for row in final.nan_to_num(nan=math.inf, posinf=math.inf).tolist()]
    best = min(range(len(by_rate)), key=by_rate.__getitem__)
    kept = [best * scale.seeds + seed for seed in seeds]
    # Sixty points of the curve.
    stretches = errors[:, kept].split(max(1, math.ceil(steps / 60)))
    model = model.keep(kept)
    return Outcome(
        rate=rates[best],
        steps=torch.tensor([len(stretch) for stretch in stretches]).cumsum(0).tolist(),
        curve=_plain(torch.stack([stretch.mean(0) for stretch in stretches], dim=1)),
        train_loss=_plain(final[best]),
        **_test(model, cell, scale),
        seconds=time.perf_counter() - started,
    )


def _test(model: StackedTransformer, cell: Cell, scale: Scale) -> dict[str, Any]:
    task, f = cell.of, cell.f
    lowest, highest = float(task.outcomes(1).values.min()), float(CEILING * scale.test_length)
    lengths = list(range(1, scale.test_length + 1))
    columns: dict[str, list[Tensor]] = {"mse": [], "mse_transformed": [], "clamped": []}
    for length in lengths:
        # By length alone: every model of every cell meets the same strings.
        generator = torch.Generator().manual_seed(length)
        of = torch.full((scale.samples,), length)
        bits = task.draw(of, length, generator)
        outcome = task.outcome(bits, of)
        z = training.predictions(model, bits, length, generator)
        y, clamped = f.invert(z, lowest=lowest, highest=highest)
        columns["mse"].append((y - outcome).square().mean(1))
        columns["mse_transformed"].append((z - f.apply(outcome)).square().mean(1))
        columns["clamped"].append(clamped.float().mean(1))
    return {"lengths": lengths, **{name: _plain(torch.stack(one, dim=1)) for name, one in columns.items()}}


def _plain(values: Tensor) -> list[Any]:
    """Numbers that JSON keeps, [seed] or [seed][column]."""
    if values.dim() > 1:
        return [_plain(row) for row in values]
    return [value if math.isfinite(value) else None for value in values.tolist()]
