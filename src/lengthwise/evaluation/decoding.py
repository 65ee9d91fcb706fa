"""Greedy replies and likelihoods of given answers, after prompts with a common beginning.

One forward pass over the tokens that all prompts begin with keeps keys and values. Only what differs is read for each
prompt. That equals reading each prompt whole, up to rounding.

- The answers to rank are read as a tree: in one more pass each question once, and each answer after it.
- Replies, and the answers of a model that cannot read a tree, are read in batches of nearly equal length, padded
  between the shared part and the rest; masks and positions keep the padding out. (A sliding window would count
  padding as tokens, so there only endings of one length are batched.)

Logits are formed only for the rows that predict an answer's tokens, or for the last row. Nothing here takes
gradients.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints import unwrap
from lengthwise.checkpoints.head import require_finite
from lengthwise.checkpoints.position_limits import check_positions_fit
from lengthwise.measure.measurement import in_groups
from lengthwise.subjects import (
    Branch,
    Endpoint,
    LoadedModel,
    Reading,
    naming_bad_logits,
    weights_of,
)
from lengthwise.subjects.pieces import PieceReader

if TYPE_CHECKING:
    from lengthwise.subjects import Predictor

Tokens = tuple[int, ...]

_WORTH_SHARING = 32
"""Tokens that a reader must save to read a common beginning by itself."""

_WHERE = "what follows a prompt"


@torch.no_grad()
def likelihoods(
    model: Predictor,
    prompts: Sequence[Tokens],
    answers: Sequence[Sequence[Tokens]],
    *,
    batch_size: int = 1,
) -> list[list[float]]:
    """log p(answer | prompt) in nats, summed over the answer's tokens, for every answer of every prompt.

    Args:
        model: loaded, in eval mode.
        prompts: token ids. Their common beginning is read once.
        answers: for each prompt the token ids of its answers, none empty.
        batch_size: how many different endings a model without a tree reads at a time.

    Raises:
        UsageError: more tokens than the model's table of positions has, or a model without a key-value cache.
        NonFiniteLogits: logits that are NaN or infinite.
    """
    pairs = [(prompt, answer) for prompt, own in zip(prompts, answers, strict=True) for answer in own]
    rows = [(*prompt, *answer[:-1]) for prompt, answer in pairs]
    check_positions_fit(model.max_positions, max(map(len, rows)), name=model.name)
    shared = min(alike(min(rows), max(rows)), *(len(prompt) - 1 for prompt in prompts))
    if (len(rows) - 1) * shared < _WORTH_SHARING:
        readings = [
            Reading(tokens=np.array(row), labels=np.array(answer))
            for row, (_, answer) in zip(rows, pairs, strict=True)
        ]
        with naming_bad_logits(model, _WHERE):
            losses = [read.losses for group in in_groups(readings, batch_size) for read in model.read(group)]
    else:
        branches = [
            Branch(place=shared, tokens=np.array(row[shared:]), labels=np.array(answer))
            for row, (_, answer) in zip(rows, pairs, strict=True)
        ]
        with naming_bad_logits(model, _WHERE):
            [read] = model.read([Reading(tokens=np.array(rows[0][:shared]), branches=branches)])
        losses = read.branches
    found = iter(-float(each.sum()) for each in losses)
    return [[next(found) for _ in own] for own in answers]


@torch.no_grad()
def replies(
    model: Predictor,
    prompts: Sequence[Tokens],
    *,
    new_tokens: int,
    batch_size: int = 1,
    stop_ids: frozenset[int] = frozenset(),
    at_least: int = 0,
    until: Callable[[str], bool] | None = None,
) -> list[str]:
    """Greedy replies to all prompts.

    A reply ends before EOS or another id of `stop_ids` (neither can be among the first `at_least` tokens), as
    soon as `until` is true of its text, or at `new_tokens`. Prompts are batched by length. Their common beginning
    is read once.

    Raises:
        UsageError: more tokens than the model's table of positions has, or a model without a key-value cache.
        NonFiniteLogits: logits that are NaN or infinite.
    """
    if isinstance(model, Endpoint):
        texts = model.replies(prompts, new_tokens=new_tokens, stop_ids=sorted(stop_ids), at_least=at_least)
        return [_cut(model.tokenizer, text, until) for text in texts] if until else texts
    model = weights_of(model, needs="decoding reads its logits", fix="give a model")
    check_positions_fit(model.max_positions, max(map(len, prompts)) + new_tokens - 1, name=model.name)
    rows = _by_length(set(prompts))
    stops = stop_ids | _eos_ids(model)
    found: dict[Tokens, str] = {}

    def text(ids: Sequence[int]) -> str:
        return model.tokenizer.decode(ids, skip_special_tokens=True)

    with naming_bad_logits(model, _WHERE):
        for batch, states, reader in _endings(model, rows, len(rows[0]) - 1, batch_size):
            written: list[list[int]] = [[] for _ in batch]
            unfinished = set(range(len(batch)))
            last = torch.stack([state[-1] for state in states])
            for step in range(new_tokens):
                logits = model.head.logits(last)
                require_finite(logits)
                if step < at_least:
                    logits[:, sorted(stops)] = -torch.inf
                chosen = logits.argmax(dim=-1)
                for row in sorted(unfinished):
                    token = int(chosen[row])
                    if token not in stops:
                        written[row].append(token)
                    if token in stops or (until is not None and until(text(written[row]))):
                        unfinished.remove(row)
                if not unfinished or step == new_tokens - 1:
                    break
                last = reader.read(chosen[:, None])[:, -1]
            found.update(zip(batch, map(text, written), strict=True))
    return [found[prompt] for prompt in prompts]


def _cut(tokenizer: Any, text: str, until: Callable[[str], bool]) -> str:
    """A server's reply, cut where `until` is first true of its tokens."""
    ids = tokenizer(text, add_special_tokens=False).input_ids
    starts = (tokenizer.decode(ids[:count]) for count in range(1, len(ids) + 1))
    return next((start for start in starts if until(start)), text)


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _by_length(rows: Iterable[Tokens]) -> list[Tokens]:
    return sorted(rows, key=lambda row: (len(row), row))


def _beginning(
    model: LoadedModel, rows: Sequence[Tokens], at_most: int, after: tuple[PieceReader, int] | None = None
) -> tuple[PieceReader, int]:
    """A reader that has read what all rows begin with, at most `at_most` tokens, and how many tokens these are.

    `after` is a reader that has read the first of them, and their number.
    """
    reader, read = after or (PieceReader(model), 0)
    # What the smallest and the greatest in dictionary order begin with, all others begin with too.
    shared = min(alike(min(rows), max(rows)), at_most)
    if (len(rows) - 1) * (shared - read) < _WORTH_SHARING:
        return reader, read
    reader.read(torch.tensor([rows[0][read:shared]]))
    return reader, shared


def _endings(
    model: LoadedModel,
    rows: Sequence[Tokens],
    at_most: int,
    batch_size: int,
    after: tuple[PieceReader, int] | None = None,
) -> Iterator[tuple[Sequence[Tokens], list[Tensor], PieceReader]]:
    """Batches of rows with what the head takes for each row's tokens after the common beginning.

    The arguments are those of `_beginning`.
    """
    beginning, shared = _beginning(model, rows, at_most, after)
    padded = beginning.takes_padding
    alike = itertools.groupby(rows, key=lambda row: None if padded else len(row))
    batches = [batch for _, some in alike for batch in in_groups(some, batch_size)]
    for batch in batches:
        # The last batch takes the memory of the beginning.
        reader = beginning.fork(len(batch), keep=batch is not batches[-1])
        width = max(map(len, batch)) - shared
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        real = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            size = len(tokens) - shared
            ids[row, width - size :] = torch.tensor(tokens[shared:])
            real[row, width - size :] = 1
        states = reader.read(ids, real)
        yield batch, [states[row, width - len(tokens) + shared :] for row, tokens in enumerate(batch)], reader


def _eos_ids(model: LoadedModel) -> frozenset[int]:
    settings: Any = unwrap(model.model).generation_config
    ids = [getattr(settings, "eos_token_id", None), model.config.eos_token_id, model.tokenizer.eos_token_id]
    return frozenset(
        one for some in ids if some is not None for one in (some if isinstance(some, list) else [some])
    )
