"""Which k distant tokens are kept: three ways to choose them well, and three controls. All give ranks, best first.

Choices look at the loss of the target itself, so they fit noise too: they are made by one model and judged by
another, or held against the same choice from a foreign text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.sparsity.kept_context import (
    context,
    distant_positions,
    embedding_attributions,
    losses_from,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel


@dataclass(frozen=True)
class Situation:
    """One target token in its window, as the model sees it that chooses."""

    model: LoadedModel
    ids: NDArray[np.int64]
    """The window."""
    target: int
    short: int
    candidates: int
    """How many distant tokens are tried one by one: the first by gradient."""
    batch_size: int

    @property
    def distant(self) -> NDArray[np.int64]:
        """The tokens to choose from."""
        return distant_positions(self.target, self.short)

    def losses(self, kept: Sequence[Sequence[int] | NDArray[np.int64]]) -> NDArray[np.float64]:
        """The target's loss with each of these sets of distant tokens: [N], nats."""
        contexts = [context(self.target, self.short, some) for some in kept]
        labels = [int(self.ids[self.target])] * len(contexts)
        return losses_from(self.model, self.ids, contexts, labels, batch_size=self.batch_size)

    @cached_property
    def by_gradient(self) -> list[int]:
        """All distant tokens, first the one with the largest |d loss / d e_s * e_s|, a norm over the embedding.

        The signed sum over the embedding does not rank: it put the answer of a needle last more often than first.
        """
        products = embedding_attributions(self.model, self.ids, self.target)[self.distant]
        return self.distant[np.argsort(-np.linalg.norm(products, axis=-1), kind="stable")].tolist()


def gradient(situation: Situation, most: int) -> list[int]:
    """By gradient times embedding in the whole context."""
    return situation.by_gradient[:most]


def leave_one_out(situation: Situation, most: int) -> list[int]:
    """By how much the loss rises when one candidate alone is removed from the whole context."""
    tried = situation.by_gradient[: situation.candidates]
    losses = situation.losses([np.setdiff1d(situation.distant, [one]) for one in tried])
    return [tried[index] for index in np.argsort(-losses, kind="stable")[:most]]


def greedy(situation: Situation, most: int) -> list[int]:
    """One by one, each time the candidate that lowers the loss most beside those already kept."""
    kept: list[int] = []
    left = list(situation.by_gradient[: situation.candidates])
    while left and len(kept) < most:
        losses = situation.losses([[*kept, one] for one in left])
        kept.append(left.pop(int(np.argmin(losses))))
    return kept


def drawn(situation: Situation, most: int, rng: np.random.Generator) -> list[int]:
    """At random."""
    return rng.permutation(situation.distant)[:most].tolist()


def recent(situation: Situation, most: int, _: np.random.Generator) -> list[int]:
    """The last before the near ones."""
    return situation.distant[::-1][:most].tolist()


def copies(situation: Situation, most: int, _: np.random.Generator) -> list[int]:
    """The last ones equal to the target; fewer where the context has fewer."""
    equal = situation.ids[situation.distant] == situation.ids[situation.target]
    return situation.distant[equal][::-1][:most].tolist()


SELECTIONS: dict[str, Callable[[Situation, int], list[int]]] = {
    "greedy": greedy,
    "leave_one_out": leave_one_out,
    "gradient": gradient,
}
CONTROLS: dict[str, Callable[[Situation, int, np.random.Generator], list[int]]] = {
    "random": drawn,
    "recent": recent,
    "copies": copies,
}
