"""Studies of cells: in each a stack of small models, one for each seed, is trained and tested by length."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from matplotlib.axes import Axes
from torch import Tensor

from lengthwise.report.drawing import Curve
from lengthwise.report.html import Section
from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise_studies.cell_runs import MODEL, finished_cells, run_cells
from lengthwise_studies.skeleton import Part
from lengthwise_studies.sparsity.shares import Outcome, Share, pooled
from lengthwise_studies.synthetic.optimizers import OPTIMIZERS
from lengthwise_studies.synthetic.training import one_thread, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

LAST_STEPS = 0.05
LEARNED = 0.9
"""The share of right answers in the training range from which a cell counts as trained."""


@dataclass(frozen=True, kw_only=True)
class GridScale:
    """How large a study is.

    Args:
        seeds: models of each cell.
        steps: training steps.
        batch: samples a step and model.
        samples: test samples for each model and test.
        width, heads: of every model; the inner layer is four times as wide.
    """

    seeds: int = 5
    steps: int
    batch: int = 32
    samples: int
    width: int
    heads: int = 4


class Cell(ABC):
    """One configuration, trained from several seeds at once; a frozen dataclass."""

    rate: ClassVar[float]
    losses: ClassVar[Callable[[StackedTransformer, Any], Tensor]]

    @property
    @abstractmethod
    def key(self) -> str:
        """Everything that tells this cell from another, in one line."""

    @abstractmethod
    def check(self, scale: Any) -> None:
        """Refuse what cannot run, before anything is trained.

        Raises:
            UsageError: see the cell.
        """

    @abstractmethod
    def steps(self, scale: Any) -> int:
        """Training steps."""

    @abstractmethod
    def architecture(self, scale: Any) -> dict[str, Any]:
        """Of its models, besides width and heads."""

    @abstractmethod
    def batches(self, scale: Any, seeds: Sequence[int]) -> Iterable[Any]:
        """One for each step."""

    @abstractmethod
    def right(self, model: StackedTransformer, scale: Any) -> dict[str, list[int]]:
        """Right answers of every model, by place."""

    @abstractmethod
    def names(self, what: str | None = None) -> tuple[str, str]:
        """Task and metric of a test's row; without a test, of the training loss."""


@one_thread()
def run_cell(cell: Cell, scale: GridScale) -> Outcome:
    """Train every seed, and test each."""
    started, seeds, steps = time.perf_counter(), list(range(scale.seeds)), cell.steps(scale)
    sizes = {"width": scale.width, "heads": scale.heads, "hidden": 4 * scale.width}
    model = StackedTransformer(Architecture(**sizes, **cell.architecture(scale)), seeds)
    losses = list(
        train(
            model,
            cell.batches(scale, seeds),
            OPTIMIZERS["adam"],
            count=steps,
            rates=[cell.rate] * scale.seeds,
            losses=type(cell).losses,
        )
    )
    return Outcome(
        train_loss=torch.stack(losses[-max(1, round(LAST_STEPS * steps)) :]).mean(0).tolist(),
        samples=scale.samples,
        right=cell.right(model, scale),
        seconds=time.perf_counter() - started,
    )


def cell_rows(cell: Cell, outcome: Outcome) -> list[Row]:
    """The training loss by seed, and the share of right answers of every test with its binomial interval."""
    task, metric = cell.names()
    rows = [
        Row(model=MODEL, task=task, metric=metric, value=loss, arm=cell.key, seed=seed)
        for seed, loss in enumerate(outcome.train_loss)
    ]
    for tested in outcome.right:
        what, _, length = tested.rpartition(", length=")
        task, metric = cell.names(what)
        one = pooled(outcome, [tested])
        found = Row(model=MODEL, task=task, metric=metric, value=one.value, unit="share", arm=cell.key)
        rows.append(replace(found, length=int(length), ci_low=one.low, ci_high=one.high, n=one.n))
    return rows


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The cells of a study, and what its page shows of them.

    Args:
        kind: of the results.
        scale: what a run records of its size, a dataclass.
        cells: at a scale, in the order of the results.
        notes: at a scale: how to read the numbers.
        page: the section that shows the outcomes at a scale.
    """

    kind: str
    scale: type
    cells: Callable[[Any], Sequence[Any]]
    notes: Callable[[Any], list[str]]
    page: Callable[[Any, Any], Section]

    def part(self, scales: Mapping[str, Any], **where: Any) -> Part:
        """As a part of a study."""
        return Part(
            run=self.run,
            sections=self.sections,
            scales=scales,
            cells=lambda scale: (self.cells(scale), run_cell),
            **where,
        )

    def run(self, out: Path, scale: Any, *, resume: bool = False, overwrite: bool = False) -> Results:
        """Train and test every cell; a finished one is in `samples.jsonl` and is not run again.

        Raises:
            UsageError: a cell that cannot run; see `RunFolder`.
            Interrupted: Ctrl-C. Finished cells stay, and `partial` has their rows.
        """
        cells = self.cells(scale)
        for cell in cells:
            cell.check(scale)

        def rows(outcomes: Mapping[Any, Outcome]) -> list[Row]:
            return [row for cell, outcome in outcomes.items() for row in cell_rows(cell, outcome)]

        how: dict[str, Any] = {"resume": resume, "overwrite": overwrite}
        return run_cells(self.kind, cells, run_cell, Outcome, rows, self.notes(scale), out, scale, **how)

    def sections(self, results: Results, folder: Path) -> list[Section]:
        """The page of a run folder."""
        plain = results.config["scale"]
        # JSON has lists where the scale has tuples.
        scale = self.scale(
            **{name: tuple(one) if isinstance(one, list) else one for name, one in plain.items()}
        )
        found = finished_cells(SampleLog(folder / "samples.jsonl"), self.cells(scale), Outcome)
        return [replace(self.page(scale, found), notes=results.notes)]


def share_curves(
    label: str, lengths: Sequence[int], shares: Sequence[Share], style: int, *, by_seed: bool = False
) -> list[Curve]:
    """The curve of shares by length, with one faint curve for each seed where wanted."""
    seeds = zip(*(one.seeds for one in shares), strict=True) if by_seed else ()
    low, high = [one.low for one in shares], [one.high for one in shares]
    return [
        *(Curve(label=label, x=lengths, y=seed, style=style, faint=True) for seed in seeds),
        Curve(label=label, x=lengths, y=[one.value for one in shares], low=low, high=high, style=style),
    ]


def shade(axes: Axes, first: int, last: int) -> None:
    """Mark the training lengths in a panel of shares."""
    axes.axvspan(first, last, color="#E69F00", alpha=0.13, linewidth=0)
    axes.set_ylim(-0.03, 1.03)
