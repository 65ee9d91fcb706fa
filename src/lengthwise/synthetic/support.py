"""How far outputs at test lengths lie outside of what training had: the paper's "support of the output".

The paper has numbers in mind: a mean stays in [0, 1], a length does not stay in {1 .. 10}. For numbers we take the
**range** of the outcomes (the fractions k / l of a mean differ from length to length, and no one calls that a shift);
for strings the **set of whole answers**. Both give one figure, the probability that an answer at a test length,
lengths weighted evenly, is outside of what training lengths can give:

    mean over test lengths l of P(answer at l is no possible answer at any length 1 .. L).

A model of strings gives one symbol at a time, and by symbols little shifts: `symbol_shift` is that other reading.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

from lengthwise.synthetic.tasks.bits import BitTask
from lengthwise.synthetic.tasks.symbols import END, SymbolTask

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
    return (
        sum(abs(training.get(symbol, 0) - testing.get(symbol, 0)) for symbol in sorted({*training, *testing}))
        / 2
    )


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
