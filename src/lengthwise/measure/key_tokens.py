"""Key tokens of a text: those that far context makes likely, by an evaluator; and tokens by their characters.

An evaluator reads a text once with all context and once in windows of `short` + `stride` tokens that advance by
`stride`, of which the last `stride` count: each of them has `short` to `short` + `stride` - 1 tokens before it.
A token is a key token if

    loss_short - loss_full > alpha   and   loss_full < -beta

The first window's context is all that there is, so it has no key tokens, and it is not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lengthwise.errors import UsageError
from lengthwise.measure.distributions import compare_contexts
from lengthwise.measure.measurement import Record, in_groups
from lengthwise.models.loaded_model import LoadedModel, target_losses
from lengthwise.text import view

if TYPE_CHECKING:
    from lengthwise.models import Predictor

Span = tuple[int, int]


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
) -> tuple[Record, NDArray[np.float64]]:
    """The key tokens of one text of any length, which the evaluator reads in `batch_size` short windows at a time.

    Arguments as the fields of `LongPpl`.

    Returns:
        `spans`, characters of the key tokens, neighbours joined; `compared`, how many tokens were read with two
        contexts; `jeffreys`, the disagreement of their two predictions, summed (nats; None from an endpoint). And
        the evaluator's losses with all context, one for each of its tokens but the first.
    """
    ids, offsets = encode(evaluator.tokenizer, text, evaluator.name)
    starts = range(stride, max(stride, len(ids) - short), stride)
    # The last window may be shorter, so it goes alone.
    full = [start for start in starts if start + short + stride <= len(ids)]
    local = evaluator if isinstance(evaluator, LoadedModel) else None
    hidden = None if local is None else read_whole(local, ids, bos_id)
    # Tokens up to the end of the first short window have one context only. Token t has loss t - 1.
    early = min(short + stride, len(ids)) - 1
    compared, shorter = [torch.empty(0, 3)], [torch.empty(0)]
    for group in [*in_groups(full, batch_size), *([start] for start in starts if start not in full)]:
        targets = min(stride, len(ids) - short - group[0])
        views = [view(ids, start, short + targets - 1, bos_id) for start in group]
        labels = [ids[start + short : start + short + targets] for start in group]
        if local is None or hidden is None:
            shorter += evaluator.token_losses(views, labels)
            continue
        cut = local.hidden_states(torch.from_numpy(np.stack(views)))[:, -targets:]
        for start, some, rows in zip(group, labels, cut, strict=True):
            first = start + short
            whole = hidden[first - 1 : first - 1 + targets]
            compared.append(compare_contexts(local, whole, rows, some, first=first))
    if local is None or hidden is None:
        losses, loss_short, jeffreys = whole_losses(evaluator, ids, bos_id), torch.cat(shorter).numpy(), None
    else:
        loss, loss_short, disagreement = torch.cat(compared).double().numpy().T
        before = target_losses(local, hidden[:early], ids[1 : early + 1]).numpy()
        losses, jeffreys = np.concatenate([before, loss]), float(disagreement.sum())
    loss = losses[early:]
    key = np.flatnonzero((loss_short - loss > alpha) & (loss < -beta)) + short + stride
    return {"spans": joined(offsets[key]), "compared": len(loss), "jeffreys": jeffreys}, losses


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
