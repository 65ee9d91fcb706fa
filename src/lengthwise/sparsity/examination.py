"""One window of `influence`: which of its tokens gain from long context, and what few distant tokens recover."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.measure.distributions import compare_contexts
from lengthwise.sparsity.kept_context import context, read_contexts
from lengthwise.sparsity.selection import CONTROLS, SELECTIONS, Situation, greedy
from lengthwise.text.tokens import token_pieces

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.sparsity.influential_tokens import InfluenceSettings
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


def examined_places(
    settings: InfluenceSettings, window: Window
) -> tuple[NDArray[np.int64], np.random.Generator]:
    """The places of a window that are examined, in random order, and the generator that drew them."""
    rng = np.random.default_rng([settings.seed, zlib.crc32(window.document_id.encode()), window.start])
    second_half = np.arange(settings.length // 2, settings.length)
    return rng.permutation(second_half)[: settings.examined], rng


def examine_window(
    model: LoadedModel,
    chooser: LoadedModel,
    settings: InfluenceSettings,
    window: Window,
    ids: NDArray[np.int64],
    foreign: NDArray[np.int32] | None,
) -> dict[str, Any]:
    """What a sample says of its window [T] in `ids`; `foreign` is a window of another text."""
    places, rng = examined_places(settings, window)
    found = examine(model, ids, places, short=settings.short, batch_size=settings.batch_size)
    gaining = places[found.short - found.long > settings.gain][: settings.targets]
    targets = [_kept_losses(model, chooser, settings, ids, int(place), foreign, rng) for place in gaining]
    return {
        "examined": [
            list(row) for row in zip(*(part.tolist() for part in vars(found).values()), strict=True)
        ],
        "targets": targets,
        "near": settings.short,
        "pieces": token_pieces(model.tokenizer, ids.tolist()) if targets else [],
    }


def _kept_losses(
    model: LoadedModel,
    chooser: LoadedModel,
    settings: InfluenceSettings,
    ids: NDArray[np.int64],
    target: int,
    foreign: NDArray[np.int32] | None,
    rng: np.random.Generator,
) -> dict[str, Any]:
    """The tokens that every choice and control keeps, and the target's loss with the first k of them."""
    most, how = max(settings.kept), (settings.short, settings.candidates, settings.batch_size)
    chosen_by = Situation(chooser, ids, target, *how)
    kept = {name: choose(chosen_by, most) for name, choose in SELECTIONS.items()}
    kept |= {name: choose(chosen_by, most, rng) for name, choose in CONTROLS.items()}
    judged = Situation(model, ids, target, *how)
    losses = _losses(judged, kept, settings.kept)
    if foreign is not None:
        other = ids.copy()
        other[judged.distant] = foreign[judged.distant]
        chosen = greedy(Situation(chooser, other, target, *how), most)
        losses |= _losses(Situation(model, other, target, *how), {"greedy_foreign": chosen}, settings.kept)
    return {"position": target, "kept": kept, "losses": losses}


def _losses(situation: Any, kept: dict[str, list[int]], sizes: Sequence[int]) -> dict[str, list[float]]:
    flat = situation.losses([chosen[:k] for chosen in kept.values() for k in sizes])
    return dict(zip(kept, flat.reshape(len(kept), len(sizes)).tolist(), strict=True))
