"""The panels of section 3's figures as data: the cells of each, and what the paper says that they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from lengthwise_studies.section3.cells import SCALES, Cell

PAPERS_ENCODINGS = ("none", "learned", "alibi", "rotary")
ENCODINGS = (*PAPERS_ENCODINGS, "randomised", "t5", "sinusoidal")
FUNCTIONS = ("sqrt", "log", "1/sqrt", "1/x", "1/log(x+1)")
OPTIMIZERS = ("adam", "sgd")
TRAIN_LENGTHS = (5, 10, 20, 40)
"""Of Figure 3; the text of the paper does not name them."""
ALIGNMENTS = ("string", "distribution")
WEIGHTS = (0.1, 0.5)
"""The alphas that the paper's tables train language models with."""

Varied = Literal["encoding", "function", "train_length", "alignment"]
CHANGES: dict[Varied, dict[str, dict[str, Any]]] = {
    "encoding": {name: {"encoding": name} for name in ENCODINGS},
    "function": {"no f": {}, **{name: {"function": name} for name in FUNCTIONS}},
    "train_length": {f"1..{length}": {"train_length": length} for length in TRAIN_LENGTHS},
    "alignment": {
        "none": {},
        **{
            f"{name} {weight:g}": {"alignment": name, "weight": weight}
            for name in ALIGNMENTS
            for weight in WEIGHTS
        },
    },
}
"""What tells the cells of a panel apart, by name."""
_LABELS = {"none": "none (NoPE)", "alibi": "ALiBi", "t5": "T5 bias"}


def curves(task: str, varies: Varied, *, shift: int = 0, optimizer: str = "adam") -> dict[str, Cell]:
    """The cells that differ in one thing, by its name; a shift is for those with an f."""
    cells = {}
    for name, change in CHANGES[varies].items():
        shifted: dict[str, Any] = {"shift": shift} if "function" in change else {}
        cells[name] = Cell(task=task, optimizer=optimizer, **change, **shifted)
    return cells


def label_of(cell: Cell, varies: Varied) -> str:
    """What a curve is called."""
    if varies == "encoding":
        return _LABELS.get(cell.encoding, cell.encoding)
    if varies == "function":
        return "no f" if cell.function == "identity" else cell.function
    if varies == "alignment":
        return f"by {cell.alignment}, {cell.weight:g}" if cell.alignment else "no alignment"
    return f"trained on 1..{cell.train_length}"


@dataclass(frozen=True)
class Panel:
    """One panel of a figure.

    Args:
        name: figure and letter.
        title: what is predicted, and what differs between the curves.
        claim: what the paper says that it shows.
        task: what is predicted.
        varies: what tells the curves of the panel apart.
        shift: of every f.
        remark: what must be known before the numbers are read.
    """

    name: str
    title: str
    claim: str
    task: str
    varies: Varied
    shift: int = 0
    remark: str = ""

    @property
    def cells(self) -> tuple[Cell, ...]:
        """One curve each: with Adam, and with the paper's optimizer what the paper shows of f and encodings."""
        adam, sgd = (curves(self.task, self.varies, shift=self.shift, optimizer=name) for name in OPTIMIZERS)
        shown = {"encoding": PAPERS_ENCODINGS, "function": tuple(sgd)}.get(self.varies, ())
        return (*adam.values(), *(sgd[name] for name in shown))


_LONGER = "Longer training lowers the error, but it still rises beyond the training length."
FIGURE1_PANELS = (
    Panel(
        "1a",
        "Mean, by encoding",
        "The error of the mean stays as it is beyond the training length; NoPE's is about 1e-5.",
        "mean",
        "encoding",
    ),
    Panel(
        "1b",
        "Length, by encoding",
        "The error of the length rises steeply beyond the training length, whatever the encoding.",
        "length",
        "encoding",
    ),
    Panel(
        "1c",
        "Length, by reparameterization f",
        "Training on f(length) improves generalization for every f; 1/sqrt is nearly perfect up to length 35.",
        "length",
        "function",
    ),
)
FIGURE3_PANELS = (
    Panel("3a", "Sum, by training length", _LONGER, "sum", "train_length"),
    Panel("3b", "Length, by training length", _LONGER, "length", "train_length"),
)
FIGURE4_PANELS = (
    Panel(
        "4a",
        "Sum, by encoding",
        "The error of the sum rises beyond the training length.",
        "sum",
        "encoding",
    ),
    Panel(
        "4b",
        "Sum, by reparameterization f of y + 1",
        "Training on f(sum) improves generalization.",
        "sum",
        "function",
        shift=1,
    ),
)
FIGURE5_PANELS = (
    Panel(
        "5",
        "Mean, with a uniform number of ones, by encoding",
        "The mean still generalizes when predicting 1/2 is no trivial solution.",
        "uniform-count-mean",
        "encoding",
    ),
)
_WRONG = "Wrong by construction: the {} changes with the cut, so right answers cannot agree."
_BY_CHANCE = (
    "The mean of a string and that of its end differ by chance, so even the right answers disagree a little."
)
ALIGNMENT_PANELS = tuple(
    Panel(
        f"aligned-{task}",
        f"{task.capitalize()}, by long-short alignment",
        "Long-short alignment improves generalization to longer inputs (of language models; it is not tried on "
        "these tasks).",
        task,
        "alignment",
        remark=_BY_CHANCE if task == "mean" else _WRONG.format(task),
    )
    for task in ("mean", "length", "sum")
)
# Half the steps of the figures: two readings of three tasks cost two to three forward passes a step.
ALIGNMENT_SCALES = {**SCALES, "default": replace(SCALES["default"], steps=1500)}


def cells_of(panels: Sequence[Panel]) -> list[Cell]:
    """Every cell once, whichever panels share it; those of the quick optimizer first."""
    cells = dict.fromkeys(cell for panel in panels for cell in panel.cells)
    return sorted(cells, key=lambda cell: OPTIMIZERS.index(cell.optimizer))
