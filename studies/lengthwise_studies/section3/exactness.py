"""What places a task on the plane: the support of its outputs, and the share of answers that models get right.

**Support.** The paper has numbers in mind: a mean stays in [0, 1], a length does not stay in {1 .. 10}. For numbers
the support is the **range** of the outcomes (the fractions k / l of a mean differ between lengths: no shift); for
strings it is the **set of whole answers**. Both give one figure, the probability that an answer at a test length,
lengths weighted evenly, lies outside of what training lengths can give:

    mean over test lengths l of P(answer at l is no possible answer at any length 1 .. L).

A model of strings gives one symbol at a time, and by symbols little shifts: `symbol_shift` measures that reading.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from statistics import fmean
from typing import Any

import torch

from lengthwise.errors import UsageError, nearest
from lengthwise_studies.section3.cells import Scale, architecture
from lengthwise_studies.synthetic.encodings import check_length
from lengthwise_studies.synthetic.optimizers import OPTIMIZERS
from lengthwise_studies.synthetic.reparameterization import IDENTITY, best_constant
from lengthwise_studies.synthetic.tasks import BIT_TASKS, SYMBOL_TASKS
from lengthwise_studies.synthetic.tasks.bits import BitTask
from lengthwise_studies.synthetic.tasks.symbols import END, SymbolTask, symbol_batch
from lengthwise_studies.synthetic.training import (
    batches,
    one_thread,
    predictions,
    symbol_accuracy,
    symbol_batches,
    symbol_losses,
    train,
)
from lengthwise_studies.synthetic.transformer import StackedTransformer

_DRAWN = 400
"""Questions drawn for each length."""


def range_outside(task: BitTask, *, train_length: int, lengths: Sequence[int]) -> float:
    """Probability that an outcome lies outside of the range of outcomes at lengths 1 .. train_length; exact."""
    seen = [task.outcomes(length).values for length in range(1, train_length + 1)]
    low, high = min(float(one.min()) for one in seen), max(float(one.max()) for one in seen)
    outside = 0.0
    for length in lengths:
        law = task.outcomes(length)
        outside += float(law.probabilities[(law.values < low) | (law.values > high)].sum())
    return outside / len(lengths)


def answers_outside(task: SymbolTask, *, train_length: int, lengths: Sequence[int]) -> float:
    """Probability that an answer is none that a question of length 1 .. train_length can have.

    In every task here an answer is possible in training unless it is longer than all answers there (the tests
    enumerate that). So it is the share of test answers longer than the longest training answer, over
    400 questions of each length; exact where an answer's length follows from the question's, which is everywhere
    but for the stack.
    """
    longest = max(
        len(answer) for length in range(1, train_length + 1) for answer in sample_answers(task, length)
    )
    shares = [_share(len(answer) > longest for answer in sample_answers(task, length)) for length in lengths]
    return sum(shares) / len(shares)


@cache
def sample_answers(task: SymbolTask, length: int) -> tuple[str, ...]:
    """Answers to 400 questions of a length, always the same."""
    rng = random.Random(length)
    return tuple(task.answer(task.draw(length, rng)) for _ in range(_DRAWN))


def symbol_shift(task: SymbolTask, *, train_length: int, lengths: Sequence[int]) -> float:
    """Total variation distance of one output symbol (the end marker is one) at test and at training lengths.

    The law of a symbol drawn evenly from all that a length's answers hold, lengths weighted evenly; over 400
    questions of each length, so up to a sampling error of some hundredths.
    """
    training = _symbol_law(task, range(1, train_length + 1))
    testing = _symbol_law(task, lengths)
    # In a fixed order, so that the sum has the same last digits in every process.
    symbols = sorted({*training, *testing})
    return sum(abs(training.get(symbol, 0) - testing.get(symbol, 0)) for symbol in symbols) / 2


def _symbol_law(task: SymbolTask, lengths: Sequence[int]) -> dict[str, float]:
    law: dict[str, float] = defaultdict(float)
    for length in lengths:
        drawn = Counter("".join(answer + END for answer in sample_answers(task, length)))
        for symbol, count in drawn.items():
            law[symbol] += count / drawn.total() / len(lengths)
    return law


def _share(outcomes: Iterable[bool]) -> float:
    found = list(outcomes)
    return sum(found) / len(found)


_LAST_STEPS = 0.05
_MEASURED = 64
"""Questions of the longest length whose tokens are counted."""


@dataclass(frozen=True, kw_only=True)
class Exactness:
    """How much a task's models get exactly right."""

    train_loss: list[float | None]
    """[seed] over the last steps: nats per symbol for strings, squared error for numbers; None if it diverged."""
    lengths: list[int]
    exact: list[list[float]]
    """[seed][length] share of answers without a mistake (greedy); of numbers that are nearest to the right one
    among the task's outcomes, that is off by less than half of their spacing."""
    symbols: list[list[float]] | None
    """[seed][length] share of right symbols, each given the right ones before it; None for numbers."""
    chance: list[float]
    """[length] what one and the same answer gets: the most frequent one in training, the best constant."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The record of a sample log."""
        return asdict(self)


@one_thread()
def exactness(name: str, encoding: str, scale: Scale, *, train_length: int) -> Exactness:
    """Train the models of one task on lengths 1 .. train_length and test them on 1 .. the scale's longest.

    Raises:
        UsageError: there is no such task or encoding; a test length beyond an encoding's table.
    """
    if name in SYMBOL_TASKS:
        return _of_strings(SYMBOL_TASKS[name], encoding, scale, train_length)
    if name in BIT_TASKS:
        return _of_numbers(BIT_TASKS[name], encoding, scale, train_length)
    raise UsageError(f"there is no task {name!r}", expected=nearest(name, [*SYMBOL_TASKS, *BIT_TASKS]))


def spacing(task: BitTask, length: int) -> float:
    """The distance of neighbouring outcomes at a length; 1 where there is only one (whole numbers)."""
    values = task.outcomes(length).values
    return float(values.diff().min()) if len(values) > 1 else 1.0


def constant_answer_shares(task: SymbolTask, *, train_length: int, lengths: Sequence[int]) -> list[float]:
    """How often the answer that is most frequent at lengths 1 .. train_length is right at each length.

    Over the 400 questions of each length that the support is measured on.
    """
    training = Counter(
        answer for length in range(1, train_length + 1) for answer in sample_answers(task, length)
    )
    [(frequent, _)] = training.most_common(1)
    return [fmean(answer == frequent for answer in sample_answers(task, length)) for length in lengths]


def _of_strings(task: SymbolTask, encoding: str, scale: Scale, train_length: int) -> Exactness:
    started, seeds, optimizer = time.perf_counter(), list(range(scale.seeds)), OPTIMIZERS["adam"]
    size = len(task.vocabulary)
    model = StackedTransformer(
        architecture(encoding, scale, vocabulary=size, tokens=size, value=False), seeds
    )
    _check_positions(model, task, encoding, max(scale.test_length, train_length))
    drawn = symbol_batches(task, longest=train_length, size=scale.batch, steps=scale.steps, seeds=seeds)
    rates = list(optimizer.rates) * len(seeds)
    losses = list(train(model, drawn, optimizer, count=scale.steps, rates=rates, losses=symbol_losses))
    lengths = list(range(1, scale.test_length + 1))
    tested = [
        symbol_accuracy(model, task, length=length, samples=scale.samples, seed=length) for length in lengths
    ]
    return Exactness(
        train_loss=_final(losses),
        lengths=lengths,
        exact=torch.stack([one.exact for one in tested], dim=1).tolist(),
        symbols=torch.stack([one.symbols for one in tested], dim=1).tolist(),
        chance=constant_answer_shares(task, train_length=train_length, lengths=lengths),
        seconds=time.perf_counter() - started,
    )


def _check_positions(model: StackedTransformer, task: SymbolTask, encoding: str, longest: int) -> None:
    """Refuse before training what cannot be tested: strings beyond a table, and drawn positions of an answer."""
    if model.encoding.draw(1, 2, torch.Generator()) is not None:
        raise UsageError(
            f"{encoding} positions for the task {task.name}: of strings they are not drawn",
            expected="an encoding whose positions are 0, 1, 2, ...",
        )
    tokens = symbol_batch(task, [longest] * _MEASURED, random.Random(longest)).tokens.shape[-1]
    check_length(encoding, model.encoding.longest, tokens)


def _of_numbers(task: BitTask, encoding: str, scale: Scale, train_length: int) -> Exactness:
    started, seeds, optimizer = time.perf_counter(), list(range(scale.seeds)), OPTIMIZERS["adam"]
    model = StackedTransformer(architecture(encoding, scale), seeds)
    drawn = batches(
        task,
        IDENTITY,
        model.encoding,
        longest=train_length,
        size=scale.batch,
        steps=scale.steps,
        seeds=seeds,
    )
    rates = list(optimizer.rates) * len(seeds)
    losses = list(train(model, drawn, optimizer, count=scale.steps, rates=rates))
    constant = best_constant(task, IDENTITY, train_length=train_length)
    lengths, exact, chance = list(range(1, scale.test_length + 1)), [], []
    for length in lengths:
        generator = torch.Generator().manual_seed(length)
        of = torch.full((scale.samples,), length)
        bits = task.draw(of, length, generator)
        off = (predictions(model, bits, length, generator) - task.outcome(bits, of)).abs()
        # A hair less than half: what lies midway between two outcomes is nearest to neither.
        near = spacing(task, length) / 2 * (1 - 1e-6)
        exact.append((off < near).float().mean(1))
        law = task.outcomes(length)
        chance.append(float(law.probabilities[(law.values - constant).abs() < near].sum()))
    return Exactness(
        train_loss=_final(losses),
        lengths=lengths,
        exact=torch.stack(exact, dim=1).tolist(),
        symbols=None,
        chance=chance,
        seconds=time.perf_counter() - started,
    )


def _final(losses: Sequence[torch.Tensor]) -> list[float | None]:
    last = torch.stack(list(losses[-max(1, round(_LAST_STEPS * len(losses))) :])).mean(0)
    return [value if math.isfinite(value) else None for value in last.tolist()]
