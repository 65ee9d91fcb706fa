"""Which k distant tokens are kept: three ways to choose them well, and three controls. All give ranks, best first.

A choice is made for several targets at once, whose contexts then fill the batches.

Choices look at the loss of the target itself, so they fit noise too: they are made by one model and judged by
another, or held against the same choice from a foreign text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.measure.kept_context import (
    context,
    distant_positions,
    embedding_attributions,
    losses_from,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel

    Kept = Sequence[int] | NDArray[np.int64]


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

    @cached_property
    def by_gradient(self) -> list[int]:
        """All distant tokens, first the one with the largest |d loss / d e_s * e_s|, a norm over the embedding.

        The signed sum over the embedding does not rank: it put the answer of a needle last more often than first.
        """
        products = embedding_attributions(self.model, self.ids, self.target)[self.distant]
        return self.distant[np.argsort(-np.linalg.norm(products, axis=-1), kind="stable")].tolist()

    @property
    def tried(self) -> list[int]:
        """The candidates."""
        return self.by_gradient[: self.candidates]


def losses_keeping(
    situations: Sequence[Situation], kept: Sequence[Sequence[Kept]]
) -> list[NDArray[np.float64]]:
    """For every situation, its target's loss with each of its sets of distant tokens, nats.

    All situations are of one model and windows of one length; contexts of all of them go together.
    """
    asked = [(one, some) for one, sets in zip(situations, kept, strict=True) for some in sets]
    if not asked:
        return [np.empty(0) for _ in situations]
    found = losses_from(
        situations[0].model,
        np.stack([one.ids for one, _ in asked]),
        [context(one.target, one.short, some) for one, some in asked],
        [int(one.ids[one.target]) for one, _ in asked],
        batch_size=situations[0].batch_size,
    )
    return np.split(found, np.cumsum([len(sets) for sets in kept])[:-1])


def gradient(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """By gradient times embedding in the whole context."""
    return [one.by_gradient[:most] for one in situations]


def leave_one_out(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """By how much the loss rises when one candidate alone is removed from the whole context."""
    without = [[np.setdiff1d(one.distant, [token]) for token in one.tried] for one in situations]
    return [
        [one.tried[index] for index in np.argsort(-losses, kind="stable")[:most]]
        for one, losses in zip(situations, losses_keeping(situations, without), strict=True)
    ]


def greedy(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """One by one, each time the candidate that lowers the loss most beside those already kept."""
    kept: list[list[int]] = [[] for _ in situations]
    left = [list(one.tried) for one in situations]
    for _ in range(most):
        sets = [[[*ours, one] for one in others] for ours, others in zip(kept, left, strict=True)]
        for ours, others, losses in zip(kept, left, losses_keeping(situations, sets), strict=True):
            if others:
                ours.append(others.pop(int(np.argmin(losses))))
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


SELECTIONS: dict[str, Callable[[Sequence[Situation], int], list[list[int]]]] = {
    "greedy": greedy,
    "leave_one_out": leave_one_out,
    "gradient": gradient,
}
CONTROLS: dict[str, Callable[[Situation, int, np.random.Generator], list[int]]] = {
    "random": drawn,
    "recent": recent,
    "copies": copies,
}


def kept_losses(
    model: LoadedModel,
    choosing: Sequence[Situation],
    foreign: NDArray[np.int32] | None,
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """For each target, the tokens that every choice and control keeps, and its loss with the first k of them.

    Args:
        model: judges.
        choosing: the targets of one window, with the model that chooses.
        foreign: a window of another text, whose distant tokens are the control `greedy_foreign`.
        sizes: every k, ascending.
        rng: of the random control.
    """
    kept = {name: choose(choosing, sizes[-1]) for name, choose in SELECTIONS.items()}
    kept |= {name: [choose(one, sizes[-1], rng) for one in choosing] for name, choose in CONTROLS.items()}
    losses = _losses(model, choosing, kept, sizes)
    if foreign is not None:
        others = [replace(one, ids=_with_distant(one, foreign)) for one in choosing]
        judged = _losses(model, others, {"greedy_foreign": greedy(others, sizes[-1])}, sizes)
        losses = [ours | more for ours, more in zip(losses, judged, strict=True)]
    return [
        {
            "position": one.target,
            "kept": {name: tokens[index] for name, tokens in kept.items()},
            "losses": own,
        }
        for index, (one, own) in enumerate(zip(choosing, losses, strict=True))
    ]


def _with_distant(situation: Situation, foreign: NDArray[np.int32]) -> NDArray[np.int64]:
    """The window of the situation, with the distant tokens of another."""
    ids = situation.ids.copy()
    ids[situation.distant] = foreign[situation.distant]
    return ids


def _losses(
    model: LoadedModel,
    situations: Sequence[Situation],
    kept: dict[str, list[list[int]]],
    sizes: Sequence[int],
) -> list[dict[str, list[float]]]:
    """For each situation, by choice: the model's loss with the first k of its tokens, for every k."""
    judged = [replace(one, model=model) for one in situations]
    sets = [[tokens[index][:k] for tokens in kept.values() for k in sizes] for index in range(len(judged))]
    return [
        dict(zip(kept, losses.reshape(len(kept), len(sizes)).tolist(), strict=True))
        for losses in losses_keeping(judged, sets)
    ]
