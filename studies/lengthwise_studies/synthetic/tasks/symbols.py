"""Tasks of strings of symbols: a question of some length and its one answer, as a causal model sees them.

One symbol is one character, so that a task reads as it works: `reverse("abb") == "bba"`. A sample becomes
`^ question = answer $`; the model is asked for the answer and `$`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lengthwise.errors import UsageError

BEGIN, EQUALS, END = "^", "=", "$"
IGNORED = -100
"""Label of a token that is not asked for; torch's cross entropy skips it."""

Hierarchy = Literal["regular", "context-free", "context-sensitive"]


@dataclass(frozen=True)
class SymbolTask:
    """A string to answer a string with.

    Args:
        name: the key in its table.
        description: in one line.
        alphabet: every symbol of questions and answers.
        draw: a question of a given length (what length counts is in the description).
        answer: the right answer.
        hierarchy: the class of the Chomsky hierarchy that Deletang et al. (2022) place it in; None for others.
        support: whether the set of possible answers grows with the length.
    """

    name: str
    description: str
    alphabet: str
    draw: Callable[[int, random.Random], str]
    answer: Callable[[str], str]
    hierarchy: Hierarchy | None
    support: Literal["fixed", "growing"]

    @property
    def vocabulary(self) -> str:
        """The alphabet and the three markers; a symbol's place is its token id."""
        return self.alphabet + BEGIN + EQUALS + END

    @property
    def chance(self) -> float:
        """Accuracy per symbol of guessing evenly among the symbols that answers are made of."""
        return 1 / len(self.answers)

    @property
    def answers(self) -> str:
        """The symbols that answers are made of, found in answers to short questions."""
        rng = random.Random(0)
        drawn = (self.answer(self.draw(length, rng)) for length in range(1, 9) for _ in range(40))
        return "".join(sorted(set().union(*drawn)))


@dataclass(frozen=True)
class SymbolBatch:
    """Samples of a symbol task."""

    tokens: Tensor
    """[N, T] token ids, padded with the end marker."""
    labels: Tensor
    """[N, T] the token that follows where it belongs to the answer, else `IGNORED`."""


def symbol_batch(task: SymbolTask, lengths: Sequence[int], rng: random.Random) -> SymbolBatch:
    """One sample for each length.

    Raises:
        UsageError: no lengths, or one below 1.
    """
    if not lengths or min(lengths) < 1:
        raise UsageError(f"lengths are {list(lengths)}", expected="one or more, each 1 or greater")
    ids = {symbol: index for index, symbol in enumerate(task.vocabulary)}
    samples = []
    for length in lengths:
        question = task.draw(length, rng)
        begin = len(question) + 1
        samples.append((begin, [ids[s] for s in BEGIN + question + EQUALS + task.answer(question) + END]))
    longest = max(len(sample) for _, sample in samples)
    tokens = torch.full((len(samples), longest), ids[END])
    labels = torch.full((len(samples), longest), IGNORED)
    for row, (begin, sample) in enumerate(samples):
        tokens[row, : len(sample)] = torch.tensor(sample)
        labels[row, begin : len(sample) - 1] = torch.tensor(sample[begin + 1 :])
    return SymbolBatch(tokens, labels)


def any_of(alphabet: str) -> Callable[[int, random.Random], str]:
    """Questions whose symbols are drawn evenly and independently."""
    return lambda length, rng: "".join(rng.choice(alphabet) for _ in range(length))
