"""The panels of section 3's figures as data: the cells of each, and what the paper says that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lengthwise_studies.section3.cells import SCALES, Cell

PAPERS_ENCODINGS = ("none", "learned", "alibi", "rotary")
ENCODINGS = (*PAPERS_ENCODINGS, "randomised", "t5", "sinusoidal")
FUNCTIONS = ("identity", "sqrt", "log", "1/sqrt", "1/x", "1/log(x+1)")
OPTIMIZERS = ("adam", "sgd")
TRAIN_LENGTHS = (5, 10, 20, 40)
"""Of Figure 3; the text of the paper does not name them."""
ALIGNMENTS = ("string", "distribution")
WEIGHTS = (0.1, 0.5)
"""The alphas that the paper's tables train language models with."""


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Args:
        name: figure and letter.
        title: what is predicted, and what differs between the curves.
        claim: what the paper says that it shows.
        varies: what tells the curves of the panel apart.
        cells: one curve each, for each optimizer.
        remark: what must be known before the numbers are read.
    """

    name: str
    title: str
    claim: str
    varies: Literal["encoding", "function", "train_length", "alignment"]
    cells: tuple[Cell, ...]
    remark: str = ""


def _by_encoding(task: str) -> tuple[Cell, ...]:
    """Every encoding with the optimizer that trains well, the paper's four with the paper's too."""
    well = [Cell(task=task, encoding=name) for name in ENCODINGS]
    as_paper = [Cell(task=task, encoding=name, optimizer="sgd") for name in PAPERS_ENCODINGS]
    return (*well, *as_paper)


def _by_function(task: str, *, shift: int = 0) -> tuple[Cell, ...]:
    """Every f with both optimizers; identity needs no shift."""
    return tuple(
        Cell(task=task, function=name, shift=0 if name == "identity" else shift, optimizer=optimizer)
        for optimizer in OPTIMIZERS
        for name in FUNCTIONS
    )


def _by_train_length(task: str) -> tuple[Cell, ...]:
    return tuple(Cell(task=task, train_length=length) for length in TRAIN_LENGTHS)


def _by_alignment(task: str) -> tuple[Cell, ...]:
    """Without, and each reading at each weight, on the same samples."""
    return (
        Cell(task=task),
        *(Cell(task=task, alignment=name, weight=weight) for name in ALIGNMENTS for weight in WEIGHTS),
    )


FIGURE1_PANELS = (
    Panel(
        "1a",
        "Mean, by encoding",
        "The error of the mean stays as it is beyond the training length; NoPE's is about 1e-5.",
        "encoding",
        _by_encoding("mean"),
    ),
    Panel(
        "1b",
        "Length, by encoding",
        "The error of the length rises steeply beyond the training length, whatever the encoding.",
        "encoding",
        _by_encoding("length"),
    ),
    Panel(
        "1c",
        "Length, by reparameterization f",
        "Training on f(length) improves generalization for every f; 1/sqrt is nearly perfect up to length 35.",
        "function",
        _by_function("length"),
    ),
)
FIGURE3_PANELS = (
    Panel(
        "3a",
        "Sum, by training length",
        "Longer training lowers the error, but it still rises beyond the training length.",
        "train_length",
        _by_train_length("sum"),
    ),
    Panel(
        "3b",
        "Length, by training length",
        "Longer training lowers the error, but it still rises beyond the training length.",
        "train_length",
        _by_train_length("length"),
    ),
)
FIGURE4_PANELS = (
    Panel(
        "4a",
        "Sum, by encoding",
        "The error of the sum rises beyond the training length.",
        "encoding",
        _by_encoding("sum"),
    ),
    Panel(
        "4b",
        "Sum, by reparameterization f of y + 1",
        "Training on f(sum) improves generalization.",
        "function",
        _by_function("sum", shift=1),
    ),
)
FIGURE5_PANELS = (
    Panel(
        "5",
        "Mean, with a uniform number of ones, by encoding",
        "The mean still generalizes when predicting 1/2 is no trivial solution.",
        "encoding",
        _by_encoding("uniform-count-mean"),
    ),
)
ALIGNMENT_PANELS = tuple(
    Panel(
        f"aligned-{task}",
        f"{task.capitalize()}, by long-short alignment",
        "Long-short alignment improves generalization to longer inputs (of language models; it is not tried on "
        "these tasks).",
        "alignment",
        _by_alignment(task),
        remark,
    )
    for task, remark in (
        (
            "mean",
            "The mean of a string and that of its end differ by chance, so even the right answers disagree a little.",
        ),
        (
            "length",
            "Wrong by construction: the length changes with the cut, so right answers cannot agree.",
        ),
        (
            "sum",
            "Wrong by construction: the sum changes with the cut, so right answers cannot agree.",
        ),
    )
)
# Half the steps of the figures: two readings of three tasks cost two to three forward passes a step.
ALIGNMENT_SCALES = {**SCALES, "default": replace(SCALES["default"], steps=1500)}


def cells_of(panels: Sequence[Panel]) -> list[Cell]:
    """Every cell once, whichever panels share it; those of the quick optimizer first."""
    cells = dict.fromkeys(cell for panel in panels for cell in panel.cells)
    return sorted(cells, key=lambda cell: OPTIMIZERS.index(cell.optimizer))
