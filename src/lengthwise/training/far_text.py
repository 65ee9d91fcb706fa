"""`data.select: far`: documents ranked by how much far context changes the predictions, the top share kept.

The score of a document is the mean of KL(p_long || p_short), in nats, over tokens of a few of its windows, with the
model as it is before training. p_long sees a window of L tokens from its start, p_short the last L/8 to L/4 of them.
L is the recipe's length: a training window shows no dependence that is longer than itself. LongFilter (ICLR 2026)
selects its text so, at 64k against 4k tokens.

The divergence says that far context changes predictions, not that it improves them. A model that does not use far
context well disagrees most on text that hangs together least. So the ranking also holds the gain, by how much far
context lowers the loss, and the results warn where the kept text gains less than the rest.

Documents are ranked, not pieces of them: a few windows tell what kind of text a document is, while pieces would
have to be read whole, which costs more than most training.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.cache import build_once, cache_dir
from lengthwise.files import atomic_write_json, read_json
from lengthwise.models import naming_bad_logits
from lengthwise.models.fingerprint import model_fingerprint
from lengthwise.models.losses import score_rows
from lengthwise.progress import progress
from lengthwise.text import TokenDocument, TokenDocuments, resolve_bos, sample_windows, view

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from lengthwise.models import LoadedModel
    from lengthwise.training.recipe import Recipe

RANKING = "far_text.json"
"""The file in a run folder that holds the ranking."""
_WINDOWS = 2


@dataclass(frozen=True)
class RankedDocument:
    """A document in a ranking, its means over `windows` windows, in nats a token."""

    id: str
    tokens: int
    kl: float
    gain: float
    """By how much far context lowers the loss."""
    windows: int


def most_tokens_read(recipe: Recipe, documents: int) -> int:
    """Tokens that the model reads to rank so many documents, at most: each window long and short."""
    return documents * _WINDOWS * 2 * recipe.length if recipe.data.select == "far" else 0


def select_far(
    recipe: Recipe, loaded: LoadedModel, documents: TokenDocuments, *, needed: int, run: Path | None
) -> tuple[tuple[TokenDocument, ...], dict[str, Any]]:
    """The documents to train on, and what a result records about their choice.

    Of the documents with `needed` tokens or more the best are kept until they hold `data.select_share` of all
    tokens. The ranking is kept in the cache, so runs of equal model, text and length measure once.

    Args:
        recipe: its `data` and `length`.
        loaded: the model before training.
        documents: the whole text.
        needed: tokens of the least document that can be used.
        run: the run folder that gets a copy of the ranking, and from which a resumed run reads it; None for none.
    """
    able = [document for document in documents if len(document.ids) >= needed]
    ranked = _kept_ranking(recipe, loaded, documents, able, run)
    wanted, held, chosen = recipe.data.select_share * sum(each.tokens for each in ranked), 0, 0
    while chosen < len(ranked) and (chosen == 0 or held < wanted):
        held += ranked[chosen].tokens
        chosen += 1
    names = {each.id for each in ranked[:chosen]}
    facts = {
        "documents": chosen,
        "of_documents": len(ranked),
        "tokens": held,
        "least_kl": ranked[chosen - 1].kl,
        "gain_kept": _mean_gain(ranked[:chosen]),
        "gain_left": _mean_gain(ranked[chosen:]),
        "long": recipe.length,
        "short": short_length(recipe.length),
        "tokens_read": most_tokens_read(recipe, len(ranked)),
    }
    return tuple(document for document in able if document.id in names), facts


def _mean_gain(documents: Sequence[RankedDocument]) -> float | None:
    return float(np.mean([each.gain for each in documents])) if documents else None


def _kept_ranking(
    recipe: Recipe,
    loaded: LoadedModel,
    documents: TokenDocuments,
    able: Sequence[TokenDocument],
    run: Path | None,
) -> list[RankedDocument]:
    """The ranking in the run folder or in the cache, measured if there is none."""
    bos_id = resolve_bos(loaded.tokenizer, recipe.data.bos)
    what = {
        "model": model_fingerprint(loaded),
        "corpus": documents.corpus_fingerprint,
        "documents": [document.id for document in able],
        "length": recipe.length,
        "bos_id": bos_id,
        "windows": _WINDOWS,
    }
    key = hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:32]
    if run is not None and (run / RANKING).exists():
        found = read_json(run / RANKING, expected="a ranking of documents")
        if found.get("key") == key:
            return [RankedDocument(**each) for each in found["ranking"]]

    def build(folder: Path) -> None:
        ranking = rank_documents(loaded, able, length=recipe.length, bos_id=bos_id, device=recipe.device)
        atomic_write_json(folder / RANKING, {"key": key, "ranking": [asdict(each) for each in ranking]})

    folder = build_once(cache_dir() / "far_text" / key, build, what="the ranking of documents")
    found = read_json(folder / RANKING, expected="a ranking of documents")
    if run is not None:
        atomic_write_json(run / RANKING, found)
    return [RankedDocument(**each) for each in found["ranking"]]


def rank_documents(
    model: LoadedModel,
    documents: Sequence[TokenDocument],
    *,
    length: int,
    bos_id: int | None,
    device: str = "auto",
) -> list[RankedDocument]:
    """Documents by the mean KL of their windows of `length` tokens, largest first.

    Args:
        model: the model; its weights are on `device` while it reads, then where they were.
        documents: each of `length` tokens or more.
        length: tokens of the long context.
        bos_id: as in training.
        device: "auto" is the accelerator, if there is one.

    Raises:
        NonFiniteLogits: with the document.
    """
    # Weights of 4 bits are on their device already.
    moved = device == "auto" and model.device.type == "cpu" and torch.accelerator.is_available()
    if moved:
        model.model.to(torch.accelerator.current_accelerator())
    ranked = []
    try:
        for document in progress(documents, what=f"rank documents by far context, L = {length}"):
            windows = sample_windows([document], length, count=_WINDOWS, allow_fewer=True)
            with naming_bad_logits(model, repr(document.id)):
                found = [far_divergence(model, window.ids, bos_id) for window in windows]
            kl, gain = np.mean(found, axis=0).tolist()
            ranked.append(RankedDocument(document.id, len(document.ids), kl, gain, len(windows)))
    finally:
        if moved:
            model.model.to("cpu")
    return sorted(ranked, key=lambda each: -each.kl)


def short_length(length: int) -> int:
    """Tokens of a short view. Its last half is compared, so a short context has half of this to all of this."""
    return length // 4


@torch.no_grad()
def far_divergence(model: LoadedModel, ids: NDArray[np.integer], bos_id: int | None) -> tuple[float, float]:
    """Mean KL(p_long || p_short) over the second half of a window, and mean -log p_short + log p_long of its tokens.

    Both in nats. For text that the model predicts with the right probabilities they are equal on average.

    Args:
        model: the model.
        ids: the window [L]; row r of the long view sees r + 1 tokens.
        bos_id: replaces the first token of each view.

    Raises:
        NonFiniteLogits: with the position in the window.
    """
    length = len(ids)
    short = short_length(length)
    step = short // 2
    # The last `step` rows of the short views follow each other up to the end of the window.
    ends = range(length - step * (length // 2 // step - 1), length + 1, step)
    first = ends[0] - step
    whole = model.hidden_states(torch.from_numpy(view(ids, 0, length, bos_id))[None])[0, first:]
    views = np.stack([view(ids, end - short, short, bos_id) for end in ends])
    cut = model.hidden_states(torch.from_numpy(views))[:, -step:].flatten(0, 1)
    # The last row's token is beyond the window; its place is filled, and not counted.
    labels = torch.from_numpy(np.append(ids[first + 1 :], 0).astype(np.int64)).to(whole.device)

    def scores(logits: torch.Tensor, some: slice) -> torch.Tensor:
        log_p = logits.log_softmax(dim=-1)
        difference = log_p - model.head.logits(cut[some]).log_softmax(dim=-1)
        gain = difference.gather(-1, labels[some, None])[:, 0]
        return torch.stack([(log_p.exp() * difference).sum(dim=-1), gain], dim=-1)

    found = score_rows(model, whole, scores, first=first)
    return found[:, 0].mean().item(), found[:-1, 1].mean().item()


def selection_note(selected: Mapping[str, Any] | None) -> list[str]:
    """A warning for a selection that kept text whose tokens gain less from far context than the rest."""
    if not selected or selected["gain_left"] is None or selected["gain_kept"] >= selected["gain_left"]:
        return []
    return [
        "data.select: far kept documents whose tokens gain less from far context "
        f"({selected['gain_kept']:.4f} nats a token) than those it left out ({selected['gain_left']:.4f}): far "
        "context changes this model's predictions there, but does not improve them."
    ]
