"""Greedy replies and likelihoods of given answers, after prompts that share what they begin with.

Prompts handed over together are read once where they are equal: one forward pass over the tokens that all of
them begin with keeps keys and values, and only what differs (a question, the answers to be ranked) is read for
each. That equals reading each whole, up to rounding. What differs is read in batches of nearly equal length,
padded between the shared part and the rest; masks and positions keep the padding out. (Where a sliding window
would count padding as tokens, only endings of one length are read together.)

No logits are formed but those that are looked at: of the rows that predict an answer's tokens, or of the last
row. Nothing here takes gradients.
"""

from __future__ import annotations

import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, DynamicSlidingWindowLayer

from lengthwise.errors import LengthwiseError, UsageError
from lengthwise.measure.rows import NonFiniteRow, chunks, target_losses
from lengthwise.models import Head, capture_hidden_states, unwrap

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel

Tokens = tuple[int, ...]

_WORTH_SHARING = 32
"""Tokens; a shorter common beginning is read again rather than kept."""


@dataclass(frozen=True)
class Reply:
    """Tokens of one greedy reply, without the one that ended it."""

    ids: Tokens
    text: str


@torch.no_grad()
def likelihoods(
    model: LoadedModel,
    prompts: Sequence[Tokens],
    answers: Sequence[Sequence[Tokens]],
    *,
    batch_size: int = 1,
) -> list[list[float]]:
    """log p(answer | prompt) in nats, summed over the answer's tokens, for every answer of every prompt.

    Args:
        model: loaded, in eval mode.
        prompts: token ids; what all of them begin with is read once.
        answers: for each prompt the token ids of its answers, none empty.
        batch_size: how many different endings are read at a time.

    Raises:
        UsageError: more tokens than a learned table of positions has, a model without a key-value cache.
        LengthwiseError: logits that are not finite.
    """
    # The last token of an answer is never read; so answers of one token share one row.
    rows = sorted(
        {(*prompt, *answer[:-1]) for prompt, own in zip(prompts, answers, strict=True) for answer in own},
        key=lambda row: (len(row), row),
    )
    _check_room(model, len(rows[-1]))
    shared = _shared(rows, at_most=min(map(len, prompts)) - 1)
    hidden: dict[Tokens, Tensor] = {}
    with _naming_bad_logits(model):
        for batch, states, _ in _endings(model, rows, shared, batch_size):
            hidden.update(zip(batch, states, strict=True))
        return [
            [_log_likelihood(model, hidden[(*prompt, *answer[:-1])], answer) for answer in own]
            for prompt, own in zip(prompts, answers, strict=True)
        ]


@torch.no_grad()
def replies(
    model: LoadedModel,
    prompts: Sequence[Tokens],
    *,
    new_tokens: int,
    batch_size: int = 1,
    stop_ids: frozenset[int] = frozenset(),
    at_least: int = 0,
    until: Callable[[str], bool] | None = None,
) -> list[Reply]:
    """The most likely next token, again and again, after every prompt.

    A reply ends before EOS or another id of `stop_ids` (neither can be among the first `at_least` tokens), as
    soon as `until` holds of its text, or at `new_tokens`. Prompts are batched by length; what all of them begin
    with is read once.

    Raises:
        UsageError: more tokens than a learned table of positions has, a model without a key-value cache.
        LengthwiseError: logits that are not finite.
    """
    _check_room(model, max(map(len, prompts)) + new_tokens - 1)
    rows = sorted(set(prompts), key=lambda row: (len(row), row))
    shared = _shared(rows, at_most=len(rows[0]) - 1)
    stops = stop_ids | _eos_ids(model)
    found: dict[Tokens, Reply] = {}
    with _naming_bad_logits(model):
        for batch, states, reader in _endings(model, rows, shared, batch_size):
            decoder = _Decoder(model, reader, stops=stops, at_least=at_least, until=until)
            found.update(zip(batch, decoder.run(states, new_tokens), strict=True))
    return [found[prompt] for prompt in prompts]


class _Reader:
    """A batch of rows being read: the cache, which columns of it are real, and the next positions."""

    def __init__(self, model: LoadedModel, cache: Cache | None, length: int, rows: int) -> None:
        self._model = model
        self._cache = cache
        self._mask = torch.ones((rows, length), dtype=torch.long, device=model.device)
        self._next = torch.full((rows, 1), length, dtype=torch.long, device=model.device)
        self._forward = inspect.signature(unwrap(model.model).forward).parameters

    @property
    def cache(self) -> Cache:
        """Keys and values of all that was read."""
        if not isinstance(self._cache, Cache):
            raise UsageError(
                f"{self._model.name} keeps no key-value cache that can be continued",
                expected="a decoder whose forward pass takes past_key_values",
            )
        return self._cache

    def read(self, ids: Tensor, real: Tensor) -> Tensor:
        """What the head takes for the columns `ids` [B, T], of which `real` [B, T] are no padding."""
        self._mask = torch.cat([self._mask, real], dim=1)
        positions = (self._next + real.cumsum(dim=1) - 1).clamp(min=0)
        self._next = self._next + real.sum(dim=1, keepdim=True)
        arguments: dict[str, Any] = {"input_ids": ids, "past_key_values": self._cache, "use_cache": True}
        # Without padding the model's own defaults say the same, and are faster.
        if not bool(self._mask.all()):
            arguments["attention_mask"] = self._mask
            if "position_ids" in self._forward:
                arguments["position_ids"] = positions
        return self._run(arguments)

    def _run(self, arguments: dict[str, Any]) -> Tensor:
        model = self._model
        if not isinstance(model.head, Head):
            output = model.model(**arguments)
            self._cache = getattr(output, "past_key_values", None)
            return output.logits
        if "logits_to_keep" in self._forward:
            arguments["logits_to_keep"] = 1
        with capture_hidden_states(model.model) as captured:
            output = model.model(**arguments)
        self._cache = getattr(output, "past_key_values", None)
        return captured.hidden_states


class _Decoder:
    """Greedy decoding of one batch."""

    def __init__(
        self,
        model: LoadedModel,
        reader: _Reader,
        *,
        stops: frozenset[int],
        at_least: int,
        until: Callable[[str], bool] | None,
    ) -> None:
        self._model = model
        self._reader = reader
        self._stops = stops
        self._at_least = at_least
        self._until = until

    def run(self, states: Sequence[Tensor], new_tokens: int) -> list[Reply]:
        """The replies; `states` are what the head takes for each row's last token."""
        written: list[list[int]] = [[] for _ in states]
        open_rows = [True] * len(states)
        last = torch.stack([state[-1] for state in states])
        for step in range(new_tokens):
            chosen = self._choose(last, step)
            for row, token in enumerate(chosen.tolist()):
                if not open_rows[row]:
                    continue
                if token in self._stops:
                    open_rows[row] = False
                    continue
                written[row].append(token)
                if self._until is not None and self._until(self._text(written[row])):
                    open_rows[row] = False
            if not any(open_rows) or step == new_tokens - 1:
                break
            last = self._reader.read(chosen[:, None], torch.ones_like(chosen[:, None]))[:, -1]
        return [Reply(tuple(ids), self._text(ids)) for ids in written]

    def _choose(self, last: Tensor, step: int) -> Tensor:
        logits = self._model.head.logits(last)
        finite = logits.isfinite().all(dim=-1)
        if not bool(finite.all()):
            raise NonFiniteRow(int((~finite).nonzero()[0, 0]))
        if step < self._at_least and self._stops:
            logits[:, sorted(self._stops)] = -torch.inf
        return logits.argmax(dim=-1)

    def _text(self, ids: Sequence[int]) -> str:
        return self._model.tokenizer.decode(ids, skip_special_tokens=True)


def _endings(
    model: LoadedModel, rows: Sequence[Tokens], shared: int, batch_size: int
) -> Iterator[tuple[Sequence[Tokens], list[Tensor], _Reader]]:
    """Batches of rows with what the head takes for each row's tokens after the first `shared`."""
    kept: Cache | None = None
    if shared:
        reader = _Reader(model, None, 0, 1)
        ids = torch.tensor([rows[0][:shared]], device=model.device)
        reader.read(ids, torch.ones_like(ids))
        kept = reader.cache
    batches = list(_batches(rows, batch_size, padded=kept is None or _takes_padding(kept)))
    for batch in batches:
        # The last batch takes the cache itself.
        cache = None if kept is None else _fork(kept, len(batch), keep=batch is not batches[-1])
        if batch is batches[-1]:
            kept = None
        reader = _Reader(model, cache, shared, len(batch))
        width = max(map(len, batch)) - shared
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        real = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            size = len(tokens) - shared
            ids[row, width - size :] = torch.tensor(tokens[shared:])
            real[row, width - size :] = 1
        states = reader.read(ids.to(model.device), real.to(model.device))
        yield batch, [states[row, width - len(tokens) + shared :] for row, tokens in enumerate(batch)], reader


def _batches(rows: Sequence[Tokens], size: int, *, padded: bool) -> Iterator[Sequence[Tokens]]:
    """Consecutive rows, at most `size` at a time; of one length only unless they may be padded."""
    for _, alike in itertools.groupby(rows, key=lambda row: None if padded else len(row)):
        group = list(alike)
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _takes_padding(cache: Cache) -> bool:
    """Whether padding after what is kept does no harm: a sliding window would count it as tokens."""
    layers: list[Any] = cache.layers
    return all(type(layer) is DynamicLayer for layer in layers)


def _fork(cache: Cache, rows: int, *, keep: bool) -> Cache:
    """The cache of one row as that of `rows` rows; `cache` itself stays as it is if it is to be kept."""
    forked: Any = cache
    if keep:
        layers: list[Any] = cache.layers
        if all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers):
            # These put new tensors in place of the old ones, so that the tensors can be shared.
            forked = copy.copy(cache)
            forked.layers = [copy.copy(layer) for layer in layers]
        else:
            forked = copy.deepcopy(cache)
    if rows > 1:
        forked.batch_repeat_interleave(rows)
    return forked


def _shared(rows: Sequence[Tokens], *, at_most: int) -> int:
    """Tokens that all rows begin with and that are worth keeping."""
    if len(rows) < 2:
        return 0
    first, last = min(rows), max(rows)
    # Between the smallest and the greatest in dictionary order all others begin alike.
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    same = min(same, at_most)
    return same if same >= _WORTH_SHARING else 0


def _log_likelihood(model: LoadedModel, hidden: Tensor, answer: Tokens) -> float:
    rows = hidden[len(hidden) - len(answer) :]
    labels = torch.tensor(answer, device=rows.device)
    total = 0.0
    for some in chunks(len(rows), model.vocab_size):
        total -= float(target_losses(model.head.logits(rows[some]), labels[some]).double().sum())
    return total


def _eos_ids(model: LoadedModel) -> frozenset[int]:
    settings: Any = unwrap(model.model).generation_config
    ids = [getattr(settings, "eos_token_id", None), model.config.eos_token_id, model.tokenizer.eos_token_id]
    return frozenset(
        one for some in ids if some is not None for one in (some if isinstance(some, list) else [some])
    )


def _check_room(model: LoadedModel, tokens: int) -> None:
    limit = model.max_positions
    if limit is not None and tokens > limit:
        raise UsageError(
            f"prompt and reply need {tokens} tokens, but {model.name} has a table of {limit} positions",
            expected=f"at most {limit} tokens (learned absolute positions cannot be exceeded)",
            fix="use shorter lengths, or a model with rotary positions",
        )


@contextmanager
def _naming_bad_logits(model: LoadedModel) -> Iterator[None]:
    try:
        yield
    except NonFiniteRow as error:
        raise LengthwiseError(
            f"{model.name} gives logits that are NaN or infinite after a prompt",
            expected="finite logits",
            fix="check the weights, or load the model with dtype float32",
        ) from error
