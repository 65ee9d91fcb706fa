"""One window of `influence`: which of its tokens gain from long context, and what few distant tokens recover."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.kept_context import context, read_contexts
from lengthwise.measure.selection import CONTROLS, SELECTIONS, Situation, greedy, losses_keeping
from lengthwise.text.tokens import token_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.text import Window


@dataclass(frozen=True)
class Examined:
    """Tokens of one window with all their context and with the near one, each [N]; losses and Jeffreys in nats."""

    places: NDArray[np.int64]
    long: NDArray[np.float64]
    short: NDArray[np.float64]
    jeffreys: NDArray[np.float64]


def examine(
    model: LoadedModel, ids: NDArray[np.int64], places: NDArray[np.int64], *, short: int, batch_size: int
) -> Examined:
    """Losses of the tokens at `places` of a window [T] with all context and with the last `short` tokens."""
    whole = model.hidden_states(torch.from_numpy(ids)[None])[0, torch.from_numpy(places - 1)]
    contexts = [context(int(place), short) for place in places]
    near = read_contexts(model, ids, contexts, batch_size=batch_size)
    scores = compare_contexts(model, whole, near, ids[places], first=0).numpy()
    return Examined(places, *scores.T)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """How a window of `influence` is examined; the fields are those of its settings."""

    length: int
    short: int
    kept: tuple[int, ...]
    """Ascending."""
    gain: float
    examined: int
    targets: int
    candidates: int
    seed: int
    batch_size: int

    def places(self, window: Window) -> tuple[NDArray[np.int64], np.random.Generator]:
        """The places of a window that are examined, in random order, and the generator that drew them."""
        rng = np.random.default_rng([self.seed, zlib.crc32(window.document_id.encode()), window.start])
        second_half = np.arange(self.length // 2, self.length)
        return rng.permutation(second_half)[: self.examined], rng

    def of_window(
        self,
        model: LoadedModel,
        chooser: LoadedModel,
        window: Window,
        ids: NDArray[np.int64],
        foreign: NDArray[np.int32] | None,
    ) -> dict[str, Any]:
        """The record of a window [T] in `ids`; `foreign` is a window of another text."""
        places, rng = self.places(window)
        found = examine(model, ids, places, short=self.short, batch_size=self.batch_size)
        gaining = places[found.short - found.long > self.gain][: self.targets]
        targets = self._kept_losses(model, chooser, ids, gaining.tolist(), foreign, rng)
        return {
            "examined": [
                list(row) for row in zip(*(part.tolist() for part in vars(found).values()), strict=True)
            ],
            "targets": targets,
            "near": self.short,
            "pieces": token_pieces(model.tokenizer, ids.tolist()) if targets else [],
        }

    def _kept_losses(
        self,
        model: LoadedModel,
        chooser: LoadedModel,
        ids: NDArray[np.int64],
        targets: Sequence[int],
        foreign: NDArray[np.int32] | None,
        rng: np.random.Generator,
    ) -> list[dict[str, Any]]:
        """For each target, the tokens that every choice and control keeps, and its loss with the first k of them."""
        most, how = max(self.kept), (self.short, self.candidates, self.batch_size)
        choosing = [Situation(chooser, ids, target, *how) for target in targets]
        kept = {name: choose(choosing, most) for name, choose in SELECTIONS.items()}
        kept |= {name: [choose(one, most, rng) for one in choosing] for name, choose in CONTROLS.items()}
        found = _losses([replace(one, model=model) for one in choosing], kept, self.kept)
        if foreign is not None:
            others = [replace(one, ids=_with_distant(one, foreign)) for one in choosing]
            chosen = {"greedy_foreign": greedy(others, most)}
            judged = _losses([replace(one, model=model) for one in others], chosen, self.kept)
            found = [ours | more for ours, more in zip(found, judged, strict=True)]
        return [
            {
                "position": target,
                "kept": {name: tokens[index] for name, tokens in kept.items()},
                "losses": losses,
            }
            for index, (target, losses) in enumerate(zip(targets, found, strict=True))
        ]


def _with_distant(situation: Situation, foreign: NDArray[np.int32]) -> NDArray[np.int64]:
    """The window of the situation, with the distant tokens of another."""
    ids = situation.ids.copy()
    ids[situation.distant] = foreign[situation.distant]
    return ids


def _losses(
    situations: Sequence[Situation], kept: dict[str, list[list[int]]], sizes: Sequence[int]
) -> list[dict[str, list[float]]]:
    """For each situation, by choice: the loss with the first k of its tokens, for every k."""
    sets = [
        [tokens[index][:k] for tokens in kept.values() for k in sizes] for index in range(len(situations))
    ]
    return [
        dict(zip(kept, losses.reshape(len(kept), len(sizes)).tolist(), strict=True))
        for losses in losses_keeping(situations, sets)
    ]
