"""Studies of cells: in each a stack of small models, one for each seed, is trained and tested by length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from matplotlib.axes import Axes
from torch import Tensor

from lengthwise.report.drawing import Curve, Picture, curve_picture
from lengthwise.results import Row
from lengthwise_studies.cell_runs import MODEL
from lengthwise_studies.sparsity.shares import Outcome, Share, pooled
from lengthwise_studies.synthetic.optimizers import OPTIMIZERS
from lengthwise_studies.synthetic.training import final_losses, one_thread, train
from lengthwise_studies.synthetic.transformer import Architecture, StackedTransformer

B = TypeVar("B")
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


def run_stack(
    scale: GridScale,
    batches: Iterable[B],
    losses: Callable[[StackedTransformer, B], Tensor],
    test: Callable[[StackedTransformer], dict[str, list[int]]],
    *,
    steps: int,
    rate: float,
    **architecture: Any,
) -> Outcome:
    """Train a model from every seed of the scale, and count the right answers of each, by place."""
    started = time.perf_counter()
    sizes = {"width": scale.width, "heads": scale.heads, "hidden": 4 * scale.width}
    model = StackedTransformer(Architecture(**sizes, **architecture), range(scale.seeds))
    rates = [rate] * scale.seeds
    with one_thread():
        taken = list(train(model, batches, OPTIMIZERS["adam"], count=steps, rates=rates, losses=losses))
        right = test(model)
    return Outcome(
        train_loss=final_losses(torch.stack(taken)).tolist(),
        samples=scale.samples,
        right=right,
        seconds=time.perf_counter() - started,
    )


def share_rows(names: Callable[[Any, str], tuple[str, str]], outcomes: Mapping[Any, Outcome]) -> list[Row]:
    """The training loss by seed, and the share of right answers of every test with its binomial interval.

    `names` gives task and metric of a cell's test; where the test is "", of the training loss.
    """
    rows: list[Row] = []
    for cell, outcome in outcomes.items():
        task, metric = names(cell, "")
        blank = Row(model=MODEL, task=task, metric=metric, value=None, arm=cell.key)
        rows += [replace(blank, value=loss, seed=seed) for seed, loss in enumerate(outcome.train_loss)]
        for tested in outcome.right:
            what, _, length = tested.rpartition(", length=")
            task, metric = names(cell, what)
            one = pooled(outcome, [tested])
            whole = replace(blank, task=task, metric=metric, value=one.value, unit="share")
            rows.append(replace(whole, length=int(length), ci_low=one.low, ci_high=one.high, n=one.n))
    return rows


def share_picture(
    lines: Iterable[tuple[str, str, Sequence[int], Sequence[Share]]],
    trained: Mapping[str, tuple[int, int]],
    *,
    caption: str,
    levels: Sequence[float] = (),
    **words: Any,
) -> list[Picture]:
    """Shares by length with each seed as a thin line; none where there are no lines.

    Args:
        lines: panel, label, lengths, and the share at each.
        trained: by panel, the range of lengths in training, which is shaded.
        caption: besides what holds for all.
        levels: shares that get a line.
        words: `name`, `title` and the names of both axes, as `curve_picture` takes them.
    """
    panels: dict[str, list[Curve]] = {panel: [] for panel in trained}
    styles: dict[str, int] = {}
    for panel, label, lengths, shares in lines:
        style = styles.setdefault(label, len(styles))
        low, high = [one.low for one in shares], [one.high for one in shares]
        panels[panel] += [
            *(
                Curve(label=label, x=lengths, y=seed, style=style, faint=True)
                for seed in zip(*(one.seeds for one in shares), strict=True)
            ),
            Curve(label=label, x=lengths, y=[one.value for one in shares], low=low, high=high, style=style),
        ]

    def dress(axes: Axes, panel: str, _: Sequence[float]) -> None:
        axes.axvspan(*trained[panel], color="#E69F00", alpha=0.13, linewidth=0)
        axes.set_ylim(-0.03, 1.03)

    caption = (
        "Pooled over seeds, with exact binomial 95 % intervals; each seed as a thin line. Shaded: training lengths. "
        + caption
    )
    found = curve_picture(panels, levels=levels, dress=dress, caption=caption, **words)
    return [found] if found else []
