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

from lengthwise.measure.kept_context import context, distant_positions, embedding_attributions, losses_from

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
    every = [(one, some) for one, sets in zip(situations, kept, strict=True) for some in sets]
    if not every:
        return [np.empty(0) for _ in situations]
    found = losses_from(
        situations[0].model,
        np.stack([one.ids for one, _ in every]),
        [context(one.target, one.short, some) for one, some in every],
        [int(one.ids[one.target]) for one, _ in every],
        batch_size=situations[0].batch_size,
    )
    return np.split(found, np.cumsum([len(sets) for sets in kept])[:-1])


def leave_one_out(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """By how much the loss rises when one candidate alone is removed from the whole context."""
    without = [[np.setdiff1d(one.distant, [token]) for token in one.tried] for one in situations]
    return [
        [one.tried[index] for index in np.argsort(-losses, kind="stable")[:most]]
        for one, losses in zip(situations, losses_keeping(situations, without), strict=True)
    ]


def greedy(situations: Sequence[Situation], most: int) -> list[list[int]]:
    """One by one, each time the candidate that lowers the loss most together with those already kept."""
    kept: list[list[int]] = [[] for _ in situations]
    left = [list(one.tried) for one in situations]
    for _ in range(most):
        sets = [[[*ours, one] for one in others] for ours, others in zip(kept, left, strict=True)]
        for ours, others, losses in zip(kept, left, losses_keeping(situations, sets), strict=True):
            if others:
                ours.append(others.pop(int(np.argmin(losses))))
    return kept


def copies(situation: Situation) -> NDArray[np.int64]:
    """The distant tokens equal to the target, the last first; fewer where the context has fewer."""
    equal = situation.ids[situation.distant] == situation.ids[situation.target]
    return situation.distant[equal][::-1]


SELECTIONS: dict[str, Callable[[Sequence[Situation], int], list[list[int]]]] = {
    "greedy": greedy,
    "leave_one_out": leave_one_out,
    "gradient": lambda situations, most: [one.by_gradient[:most] for one in situations],
}
CONTROLS: dict[str, Callable[[Situation, np.random.Generator], NDArray[np.int64]]] = {
    "random": lambda situation, rng: rng.permutation(situation.distant),
    "recent": lambda situation, _: situation.distant[::-1],
    "copies": lambda situation, _: copies(situation),
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
    most = sizes[-1]

    def losses(
        situations: Sequence[Situation], kept: dict[str, list[list[int]]]
    ) -> list[dict[str, list[float]]]:
        judged = [replace(one, model=model) for one in situations]
        sets = [[some[i][:k] for some in kept.values() for k in sizes] for i in range(len(judged))]
        return [
            dict(zip(kept, found.reshape(len(kept), len(sizes)).tolist(), strict=True))
            for found in losses_keeping(judged, sets)
        ]

    kept = {name: choose(choosing, most) for name, choose in SELECTIONS.items()}
    kept |= {name: [order(one, rng)[:most].tolist() for one in choosing] for name, order in CONTROLS.items()}
    found = losses(choosing, kept)
    if foreign is not None:
        others = []
        for one in choosing:
            ids = one.ids.copy()
            ids[one.distant] = foreign[one.distant]
            others.append(replace(one, ids=ids))
        control = losses(others, {"greedy_foreign": greedy(others, most)})
        found = [own | more for own, more in zip(found, control, strict=True)]
    return [
        {"position": one.target, "kept": {name: some[i] for name, some in kept.items()}, "losses": own}
        for i, (one, own) in enumerate(zip(choosing, found, strict=True))
    ]
