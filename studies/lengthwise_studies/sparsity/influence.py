"""Do a few tokens suffice? Figures 2 and 6 of the sparsity paper in small, on books and on code.

The paper trains its own models on C4 and keeps the k tokens of the long context that its Eq. 20 names; neither sizes
nor that equation were found. Here a released model is measured, and the choices are ours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lengthwise.report.html import Section
from lengthwise.report.tables import Table, row_estimate
from lengthwise.results import Results, Row
from lengthwise.samples import SampleLog
from lengthwise_studies.arms import Arm, Scale
from lengthwise_studies.claims import (
    FAILS,
    HOLDS,
    NOT_DECIDED,
    Decision,
    judge,
    placed,
    ruled,
    verdict_table,
)
from lengthwise_studies.experiments import Experiment
from lengthwise_studies.skeleton import Part, Study
from lengthwise_studies.sparsity.influence_measure import ENOUGH, METHODS

ARM = Arm(name="as it is")
NEARLY_ALL, MOST = 0.8, 0.5
FEWEST_DOCUMENTS = 8
"""Intervals over fewer are too rough for a verdict."""
TOO_FEW = f"{NOT_DECIDED}: fewer than {FEWEST_DOCUMENTS} documents"
Numbers = dict[tuple[str, int | None], Row]
"""The rows by metric and k."""


@dataclass(frozen=True)
class Token:
    """One examined token; losses in nats. `needed`: the fewest kept tokens that are enough, inf; None if untried."""

    document: str
    key: str
    place: int
    long: float
    short: float
    needed: float | None

    @property
    def gain(self) -> float:
        """What distant context is worth to it."""
        return self.short - self.long


def tokens_of(samples: SampleLog, kept: Sequence[int]) -> list[Token]:
    """Every examined token of a run of `influence`, by sample; `kept` are the k of the run, in any order."""
    sizes, found = sorted(set(kept)), []
    for key in sorted(samples):
        record = samples[key]
        chosen = {target["position"]: target["losses"]["greedy"] for target in record["targets"]}
        for place, long, short, _ in record["examined"]:
            needed = None
            if place in chosen:
                enough = ENOUGH * (short - long)
                losses = zip(sizes, chosen[place], strict=True)
                needed = next((float(k) for k, loss in losses if short - loss >= enough), math.inf)
            found.append(Token(record["document"], key, place, long, short, needed))
    return found


def decided(
    ours: str,
    rows: Sequence[Row],
    holds: Callable[[NDArray[np.float64], NDArray[np.float64]], bool],
    fails: Callable[[NDArray[np.float64], NDArray[np.float64]], bool],
) -> Decision:
    """A verdict from both ends of these intervals; none where one is missing, or over few documents."""
    if any(row.ci_low is None or (row.documents or 0) < FEWEST_DOCUMENTS for row in rows):
        return ours, TOO_FEW
    ends = np.array([row.ci_low for row in rows]), np.array([row.ci_high for row in rows])
    return ours, HOLDS if holds(*ends) else FAILS if fails(*ends) else NOT_DECIDED


def _at_least(metric: str, threshold: float, numbers: Numbers) -> Decision | None:
    """Whether the whole interval of a share is above a threshold, with the largest k."""
    k = _sizes(numbers)[-1]
    row = numbers.get((metric, k))
    if row is None:
        return None
    ours = f"{row_estimate(row).text} with {k} tokens"
    return decided(ours, [row], lambda low, _: low[0] >= threshold, lambda _, high: high[0] < threshold)


def _above_controls(numbers: Numbers) -> Decision:
    """Whether the interval of greedy is above those of all controls, with the largest k."""
    k = _sizes(numbers)[-1]
    found = {name: numbers[f"recovered_{name}", k] for name in ("greedy", "random", "recent", "copies")}
    ours = ", ".join(f"{name} {row_estimate(row).text}" for name, row in found.items())
    rows = [*found.values()]
    greedy, *controls = (row.value or 0.0 for row in rows)
    return decided(ours, rows, lambda low, high: low[0] > max(high[1:]), lambda *_: greedy <= max(controls))


def _sizes(numbers: Numbers) -> list[int]:
    """Every k that was measured."""
    return sorted({kept for _, kept in numbers if kept is not None})


_PLACE = "Fig. 2, 6"
CLAIMS = ruled(
    (
        _PLACE,
        "a few tokens of the long context predict nearly as well as all of them",
        "drawn, no number",
        f"greedy recovers {NEARLY_ALL:.0%} of the gain or more with the largest k (whole interval)",
        partial(_at_least, "recovered_greedy", NEARLY_ALL),
    ),
    (
        _PLACE,
        "the same, beyond what choosing by the reported loss recovers from a foreign text",
        "not considered",
        f"recovered_net is {MOST:.0%} or more with the largest k (whole interval)",
        partial(_at_least, "recovered_net", MOST),
    ),
    (
        _PLACE,
        "which tokens are kept matters",
        "drawn, no number",
        "the interval of greedy is above those of random, recent and copies",
        _above_controls,
    ),
)


def recovery_table(numbers: Numbers, text: str) -> Table:
    """One line for each choice and control, one column for each k."""
    sizes = _sizes(numbers)
    names = {f"recovered_{name}": name.replace("_", " ") for name in (*METHODS, "net")}
    names["enough"] = "targets for which greedy is enough"
    return Table(
        columns=["share of the gain", *(f"k = {k}" for k in sizes)],
        rows=[
            [name, *(row_estimate(numbers[metric, k]) for k in sizes)]
            for metric, name in names.items()
            if (metric, sizes[0]) in numbers
        ],
        caption=f"Recovered gain on {text}, 95 % intervals over documents",
    )


def sections(results: Results, folder: Path) -> list[Section]:
    """One text: claims, and recovery by k."""
    numbers = {(row.metric, row.kept): row for row in results.rows if row.reference is None}
    text = results.config["text"]
    gain, gaining = numbers["gain", None], numbers["gaining", None]
    return [
        Section(
            title=f"Do a few tokens suffice? {text.capitalize()}",
            paragraphs=[
                f"Of the examined tokens of `{results.model_name}` on {text}, "
                f"{row_estimate(gaining).text} gain from long context; {gain.n} of them were targets, which gain "
                f"{row_estimate(gain).text} nats each. With k distant tokens kept and all other distant ones "
                "removed:",
            ],
            tables=[verdict_table(judge(placed(CLAIMS, text), numbers)), recovery_table(numbers, text)],
            notes=results.notes,
        )
    ]


EXPERIMENT = Experiment(
    kind="influence-study",
    dtype="fast",
    arms=(ARM,),
    notes=(
        "Up to {measures[influence][windows]} windows of {measures[influence][length]} tokens of {documents} "
        "documents; near context {measures[influence][short]} tokens, {measures[influence][candidates]} "
        "candidates by gradient. Context stays within what the model was trained for.",
        "A removed token is masked for every query in every layer. So a kept token is read without its "
        "neighbours, which is harder than hiding removed tokens from the target alone.",
    ),
)
REAL = {"length": 512, "short": 48, "kept": [1, 2, 4, 8], "examined": 32, "candidates": 10, "batch_size": 32}
_FEW = {"windows": 3, "examined": 12, "targets": 1, "candidates": 5}
SMOKE = {**REAL, **_FEW, "length": 96, "short": 16, "kept": [1, 4], "gain": 0.1}


def _part(text: str) -> Part:
    def scale(windows: int, targets: int) -> Scale:
        # Seven held-out books are too few for a verdict, and nothing here was trained on the others.
        split = "all" if text == "books" else "test"
        influence = {**REAL, "windows": windows, "targets": targets}
        return Scale(model="smollm2-135m", text=text, split=split, measures={"influence": influence})

    return EXPERIMENT.part(
        sections,
        {
            "default": scale(40, 3),
            "laptop": scale(12, 2),
            "smoke": Scale(model="tiny-books", text=text, measures={"influence": SMOKE}),
        },
        folder=f"influence-{text}",
        heading=text.capitalize(),
        claims=lambda scale: placed(CLAIMS, scale.text),
    )


INFLUENCE = Study(
    title="Do a few tokens of a long context suffice?",
    parts=(_part("books"), _part("code")),
    lead=(
        "How much of the gain from long context do k well-chosen distant tokens recover? After figures 2 and 6 of "
        "The Role of Sparsity for Length Generalization in LLMs.",
    ),
)
