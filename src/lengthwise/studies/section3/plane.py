"""Which goes with generalization: the support of the output, or the class of the task? A reviewer's doubt, measured.

Every task gets a place on a plane (the share of its answers outside of the support of training; its class in the
Chomsky hierarchy) and the exact accuracy of small Transformers trained on it, beyond the training length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from lengthwise.results import Results, Row
from lengthwise.runs import RunFolder
from lengthwise.samples import SampleLog
from lengthwise.studies.cell_runs import MODEL
from lengthwise.studies.section3.cells import SCALES as CELL_SCALES
from lengthwise.studies.section3.cells import Scale
from lengthwise.studies.section3.exactness import (
    Exactness,
    answers_outside,
    exactness,
    range_outside,
    symbol_shift,
)
from lengthwise.studies.section3.grid import spread
from lengthwise.studies.side_by_side import run_missing
from lengthwise.synthetic.tasks import BIT_TASKS, SYMBOL_TASKS

TRAIN_LENGTH = 8
TASKS = (*(name for name in SYMBOL_TASKS if name != "addition-hinted"), *BIT_TASKS)
"""Index hints double an addition, which costs as much as four other tasks, and change no place on the plane."""
ENCODINGS = ("none", "alibi")
CELLS = {f"{task}, {encoding}": (task, encoding) for task in TASKS for encoding in ENCODINGS}
CLASSES = ("regular", "context-free", "context-sensitive")
FITTED = 0.9
"""A task whose models are less accurate than this in training range shows nothing about generalization."""
SOLVED = 0.9
"""Deletang et al. call a task solved from 0.9 on, by symbols; here it is answers."""
FIXED, GROWING = "unchanged", "grown"
RESAMPLES, SEED = 2000, 20250713
FEWEST = 5
"""Fewer pairs give no interval."""
MOST_UNDEFINED = 0.05


# Symbol tasks have longer sequences and larger alphabets; lengths up to twice those of training.
SCALES = {
    "default": Scale(name="default", seeds=3, steps=1500, batch=16, test_length=16, samples=64, width=32),
    "smoke": replace(CELL_SCALES["smoke"], steps=3),
}


@dataclass(frozen=True)
class Placed:
    """One task with the encoding that generalizes best on it, above chance: 0 is guessing, 1 is all right.

    Args:
        task: its name.
        hierarchy: its class by Deletang et al. (2022); None where they have no such task.
        outside: share of test answers outside of the support of training answers.
        shift: total variation distance of single output symbols; None for numbers.
        encoding: the one that is shown.
        fit: [seed] in training range.
        beyond: [seed] beyond it.
        symbols: median share of right symbols beyond it, as it is; None for numbers.
        chance: exact answers beyond training of one and the same answer, as it is.
    """

    task: str
    hierarchy: str | None
    outside: float
    shift: float | None
    encoding: str
    fit: list[float]
    beyond: list[float]
    symbols: float | None
    chance: float

    @property
    def fitted(self) -> bool:
        """Whether the training range was learned."""
        return median(self.fit) >= FITTED

    @property
    def number(self) -> bool:
        """Whether the answer is one number."""
        return self.task in BIT_TASKS

    @property
    def generalization(self) -> float:
        """The median over seeds beyond training."""
        return median(self.beyond)

    @property
    def solved(self) -> bool:
        """Whether it holds beyond training."""
        return self.generalization >= SOLVED

    @property
    def support(self) -> str:
        """Whether any test answer is outside."""
        return GROWING if self.outside > 0 else FIXED


@dataclass(frozen=True)
class Correlation:
    """A rank correlation; None where one side is constant, or the interval is undefined."""

    value: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Association:
    """A rank correlation, and of what."""

    of: str
    tasks: str
    correlation: Correlation


Found = dict[tuple[str, str], Exactness]
"""By task and encoding."""


def run_plane(out: Path | str, scale: Scale, *, resume: bool = False, overwrite: bool = False) -> Results:
    """Train and test every task with every encoding; a finished one is in `samples.jsonl`.

    Rows are in the order of the cells, whichever finish first.

    Raises:
        UsageError: see `RunFolder`.
        Interrupted: Ctrl-C. Finished tasks stay.
    """
    settings = {"scale": asdict(scale), "train_length": TRAIN_LENGTH, "cells": list(CELLS)}
    with RunFolder(out, kind="synth-plane", config=settings, resume=resume, overwrite=overwrite) as folder:
        run_missing(CELLS, partial(_exactness, scale=scale), folder.samples, scale=scale, what="tasks")
        if finished := folder.finished:
            return finished
        found = exactness_in(folder.samples)
        results = Results(
            kind="synth-plane",
            model_name="plane",
            config=settings,
            rows=_rows(found, place(found)),
            notes=notes(scale),
            provenance={"seconds_of_training_and_testing": round(sum(o.seconds for o in found.values()), 1)},
        )
        folder.write_results(results)
        return results


def exactness_in(log: SampleLog) -> Found:
    """The outcome of every cell, in the order of the cells."""
    return {pair: Exactness(**log[key]) for key, pair in CELLS.items()}


def _exactness(pair: tuple[str, str], scale: Scale) -> Exactness:
    task, encoding = pair
    return exactness(task, encoding, scale, train_length=TRAIN_LENGTH)


def place(found: Found) -> list[Placed]:
    """Every task on the plane, with its better encoding: the one that gets more right beyond training."""
    placed = []
    for task in dict.fromkeys(task for task, _ in found):
        candidates = [
            _placed(task, encoding, outcome) for (of, encoding), outcome in found.items() if of == task
        ]
        # One that fits comes first: an encoding that did not learn the task is right by luck.
        placed.append(max(candidates, key=lambda one: (one.fitted, one.generalization)))
    return placed


def associations(placed: Sequence[Placed]) -> list[Association]:
    """Rank correlations of generalization with both axes and between the axes, over tasks that fit and over all."""
    found = []
    for tasks, chosen in (
        ("that fit", [one for one in placed if one.fitted]),
        ("all", list(placed)),
    ):
        classed = [one for one in chosen if one.hierarchy is not None]
        level = [float(CLASSES.index(one.hierarchy or "")) for one in classed]
        strings = [one for one in chosen if not one.number]
        in_class = f"{tasks}, with a class"
        for of, group, x, y in (
            ("generalization and support left", tasks, _outside(chosen), _beyond(chosen)),
            ("generalization and support left", in_class, _outside(classed), _beyond(classed)),
            ("generalization and class", in_class, level, _beyond(classed)),
            ("support left and class", in_class, _outside(classed), level),
            ("generalization and support left", f"{tasks}, strings", _outside(strings), _beyond(strings)),
        ):
            found.append(Association(of, group, rank_correlation(x, y)))
    return found


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Spearman's rho (ties share their mean rank) with a 95 % percentile bootstrap interval over pairs.

    Pairs are resampled 2000 times. There is no interval for fewer than 5 pairs, or where one side is constant in over
    5 % of the resamples; fewer such resamples are left out.
    """
    pairs = np.array([x, y], dtype=float)
    n = pairs.shape[1]
    value = _rho(rankdata(pairs, axis=-1)) if n else None
    if n < FEWEST or value is None:
        return Correlation(value, None, None, n)
    drawn = np.random.default_rng(SEED).integers(n, size=(RESAMPLES, n))
    ranked = rankdata(pairs[:, drawn], axis=-1).swapaxes(0, 1)
    defined = [one for one in map(_rho, ranked) if one is not None]
    if len(defined) < (1 - MOST_UNDEFINED) * RESAMPLES:
        return Correlation(value, None, None, n)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Correlation(value, float(low), float(high), n)


def _rho(ranks: NDArray[np.float64]) -> float | None:
    if (ranks == ranks[:, :1]).all(axis=1).any():
        return None
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def _outside(placed: Sequence[Placed]) -> list[float]:
    return [one.outside for one in placed]


def _beyond(placed: Sequence[Placed]) -> list[float]:
    return [one.generalization for one in placed]


def above_chance(share: float, chance: float) -> float:
    """(share - chance) / (1 - chance), not below 0: 0 is what guessing gets, 1 is everything."""
    return max(0.0, (share - chance) / (1 - chance)) if chance < 1 else 0.0


def _placed(task: str, encoding: str, outcome: Exactness) -> Placed:
    inside = [at for at, length in enumerate(outcome.lengths) if length <= TRAIN_LENGTH]
    beyond = [at for at, length in enumerate(outcome.lengths) if length > TRAIN_LENGTH]
    lengths = [outcome.lengths[at] for at in beyond]
    if task in SYMBOL_TASKS:
        of = SYMBOL_TASKS[task]
        hierarchy = of.hierarchy
        outside = answers_outside(of, train_length=TRAIN_LENGTH, lengths=lengths)
        shift = symbol_shift(of, train_length=TRAIN_LENGTH, lengths=lengths)
    else:
        hierarchy, shift = None, None
        outside = range_outside(BIT_TASKS[task], train_length=TRAIN_LENGTH, lengths=lengths)
    by_symbol = None if outcome.symbols is None else median(_mean(seed, beyond) for seed in outcome.symbols)
    inner, outer = _mean(outcome.chance, inside), _mean(outcome.chance, beyond)
    return Placed(
        task=task,
        hierarchy=hierarchy,
        outside=outside,
        shift=shift,
        encoding=encoding,
        fit=[above_chance(_mean(seed, inside), inner) for seed in outcome.exact],
        beyond=[above_chance(_mean(seed, beyond), outer) for seed in outcome.exact],
        symbols=by_symbol,
        chance=outer,
    )


def _mean(values: Sequence[float], at: Sequence[int]) -> float:
    return fmean(values[index] for index in at)


def _rows(found: Found, placed: Sequence[Placed]) -> list[Row]:
    rows = []
    for (task, encoding), outcome in found.items():
        one = _placed(task, encoding, outcome)
        for metric, values in (("exact_in_range", one.fit), ("exact_out_of_range", one.beyond)):
            over = spread(values)
            rows.append(
                Row(
                    model=MODEL,
                    task=task,
                    metric=metric,
                    value=over.value,
                    unit="share above chance",
                    arm=encoding,
                    ci_low=over.low,
                    ci_high=over.high,
                    n=len(values),
                )
            )
    for one in placed:
        places = {"answers_outside_support": one.outside, "symbol_shift": one.shift, "chance": one.chance}
        rows += [
            Row(model="none", task=one.task, metric=metric, value=value, unit="share")
            for metric, value in places.items()
            if value is not None
        ]
    rows += [
        Row(
            model=MODEL,
            task=f"{one.of} ({one.tasks})",
            metric="rank_correlation",
            value=one.correlation.value,
            unit="Spearman's rho",
            ci_low=one.correlation.low,
            ci_high=one.correlation.high,
            n=one.correlation.n,
        )
        for one in associations(placed)
    ]
    return rows


def notes(scale: Scale) -> list[str]:
    """How to read the numbers."""
    return [
        f"Models: {scale.layers} layers, width {scale.width}, {scale.heads} heads; {scale.steps} steps of "
        f"{scale.batch} fresh samples of lengths 1..{TRAIN_LENGTH} with Adam; {scale.seeds} seeds; encodings "
        f"{', '.join(ENCODINGS)}. Tested on {scale.samples} questions at each length up to {scale.test_length}.",
        "A string is right if greedy decoding gives the whole answer, a number if the right outcome is the nearest: "
        "within half a unit for sum and length, within half of 1 / length for a mean, the strictest demand. 0 is the "
        "accuracy of one constant answer (the most frequent in training; the best constant), 1 is all right.",
        "Each task is shown with the encoding that fits, and among these generalizes better. That is a choice by "
        "test accuracy, so it is biased upwards, as in Deletang et al.",
        f"A task fits if the median over seeds in training range is at least {FITTED}; fixed beforehand.",
        "Classes are those of Deletang et al. (2022); copy, sort of distinct symbols, decimal addition and the tasks "
        "of bits have none there.",
        "Intervals of correlations: bootstrap over tasks. Tasks are chosen by people, not drawn, so they "
        "show how much depends on single tasks, and nothing about other tasks.",
    ]
