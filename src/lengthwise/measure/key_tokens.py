"""Key tokens of a text: those that far context makes likely, by an evaluator; and tokens by their characters.

An evaluator reads a text once with all context and once in windows of `short` + `stride` tokens that advance by
`stride`, of which the last `stride` count: each of them has `short` to `short` + `stride` - 1 tokens before it.
A token is a key token if

    loss_short - loss_full > alpha   and   loss_full < -beta

The first window's context is all that there is, so it has no key tokens, and it is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lengthwise.errors import UsageError
from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.measurement import in_groups
from lengthwise.models.loaded_model import LoadedModel, target_losses
from lengthwise.text import view

if TYPE_CHECKING:
    from lengthwise.models import Predictor

Span = tuple[int, int]
_Groups = Sequence[Sequence[int]]
"""Starts of short windows that are read together."""


@dataclass(frozen=True, kw_only=True)
class KeyTokens:
    """What the evaluator finds in one text."""

    spans: list[Span]
    """Characters of the key tokens, neighbours joined."""
    tokens: int
    """How many they are, in the evaluator's tokens."""
    losses: NDArray[np.float64]
    """The evaluator's own losses with all context, one for each of its tokens but the first."""
    compared: int
    """Tokens that were read with two contexts."""
    jeffreys: float | None
    """Disagreement of the two predictions, summed over them (nats); None from an endpoint."""


def encode(tokenizer: Any, text: str, name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids [T] and the characters of each token [T, 2], without special tokens.

    Raises:
        UsageError: the tokenizer is a slow one, which does not know the characters.
    """
    if not tokenizer.is_fast:
        raise UsageError(
            f"the tokenizer of {name} does not say which characters its tokens are",
            expected="a fast tokenizer (tokenizer.json)",
        )
    found = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    offsets = np.asarray(found["offset_mapping"], dtype=np.int64).reshape(-1, 2)
    return np.asarray(found["input_ids"], dtype=np.int64), offsets


def find_key_tokens(
    evaluator: Predictor,
    text: str,
    *,
    short: int,
    stride: int,
    alpha: float,
    beta: float,
    bos_id: int | None = None,
    batch_size: int = 1,
) -> KeyTokens:
    """The key tokens of one text of any length, which the evaluator reads in `batch_size` short windows at a time.

    Arguments as the fields of `LongPplSpec`.
    """
    ids, offsets = encode(evaluator.tokenizer, text, evaluator.name)
    starts = range(stride, max(stride, len(ids) - short), stride)
    # The last window may be shorter, so it goes alone.
    full = [start for start in starts if start + short + stride <= len(ids)]
    groups = [*in_groups(full, batch_size), *([start] for start in starts if start not in full)]
    if isinstance(evaluator, LoadedModel):
        found = _compared(evaluator, ids, groups, short, stride, bos_id)
    else:
        found = _compared_losses(evaluator, ids, groups, short, stride, bos_id)
    early, loss, loss_short, jeffreys = found
    key = np.flatnonzero((loss_short - loss > alpha) & (loss < -beta)) + short + stride
    return KeyTokens(
        spans=joined(offsets[key]),
        tokens=len(key),
        losses=np.concatenate([early, loss]),
        compared=len(loss),
        jeffreys=jeffreys,
    )


_Compared = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float | None]
"""Losses before the first short window; after it with all context and with the short one; summed Jeffreys."""


def _compared(
    evaluator: LoadedModel,
    ids: NDArray[np.int64],
    groups: _Groups,
    short: int,
    stride: int,
    bos_id: int | None,
) -> _Compared:
    hidden = read_whole(evaluator, ids, bos_id)
    scores = []
    for group in groups:
        targets = min(stride, len(ids) - short - group[0])
        views = np.stack([view(ids, start, short + targets - 1, bos_id) for start in group])
        cut = evaluator.hidden_states(torch.from_numpy(views))[:, -targets:]
        for start, rows in zip(group, cut, strict=True):
            first = start + short
            labels = ids[first : first + targets]
            scores.append(
                compare_contexts(
                    evaluator, hidden[first - 1 : first - 1 + targets], rows, labels, first=first
                )
            )
    both = torch.cat(scores).numpy() if scores else np.empty((0, 3))
    labels = ids[1 : short + stride]
    early = target_losses(evaluator, hidden[: len(labels)], labels, first=0).numpy()
    loss, loss_short, jeffreys = both.T
    return early, loss, loss_short, float(jeffreys.sum())


def _compared_losses(
    evaluator: Predictor, ids: NDArray[np.int64], groups: _Groups, short: int, stride: int, bos_id: int | None
) -> _Compared:
    whole = whole_losses(evaluator, ids, bos_id)
    found = [np.empty(0)]
    for group in groups:
        targets = min(stride, len(ids) - short - group[0])
        views = [view(ids, start, short + targets - 1, bos_id) for start in group]
        labels = [ids[start + short : start + short + targets] for start in group]
        found += [losses.numpy() for losses in evaluator.token_losses(views, labels)]
    # Token t has loss t - 1.
    early = min(short + stride, len(ids)) - 1
    return whole[:early], whole[early:], np.concatenate(found), None


def joined(offsets: NDArray[np.int64]) -> list[Span]:
    """Spans of characters in order, those that touch made one."""
    spans: list[Span] = []
    for begin, end in offsets.tolist():
        if spans and begin <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((begin, end))
    return spans


def tokens_within(offsets: NDArray[np.int64], spans: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    """Indices of the tokens whose characters lie wholly inside one span."""
    if not spans:
        return np.empty(0, dtype=np.int64)
    begins, ends = np.asarray(spans, dtype=np.int64).T
    place = np.searchsorted(begins, offsets[:, 0], side="right") - 1
    inside = (place >= 0) & (offsets[:, 1] <= ends[place.clip(0)]) & (offsets[:, 0] < offsets[:, 1])
    # The first token of a text has no prediction.
    inside[:1] = False
    return np.flatnonzero(inside)


def whole_losses(model: Predictor, ids: NDArray[np.int64], bos_id: int | None) -> NDArray[np.float64]:
    """Losses of all of `ids` but the first, each with all before it: [T - 1], nats."""
    if isinstance(model, LoadedModel):
        return target_losses(model, read_whole(model, ids, bos_id)[:-1], ids[1:]).numpy()
    return model.token_losses([view(ids, 0, len(ids) - 1, bos_id)], [ids[1:]])[0].numpy()


def read_whole(model: LoadedModel, ids: NDArray[np.int64], bos_id: int | None) -> torch.Tensor:
    """Hidden states of all of `ids`, each token with all before it: [T, D]."""
    return model.hidden_states(torch.from_numpy(view(ids, 0, len(ids), bos_id))[None])[0]
