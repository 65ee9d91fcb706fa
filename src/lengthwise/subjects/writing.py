"""Greedy replies of a model whose weights are here.

The next token is the likeliest after one plain pass over the prompt and what was written. Three shortcuts are proven
before they are taken: a reply is decoded from a cache, the common beginning of prompts is read once, and several
replies are written side by side. Along a path that reads through a cache, that path is the definition: its passes
read the prompt, and the tokens are decoded one by one from its cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import torch
from torch import Tensor

from lengthwise.checkpoints.head import require_finite
from lengthwise.checkpoints.hidden import unwrap
from lengthwise.checkpoints.position_limits import check_positions_fit
from lengthwise.subjects.pieces import PieceReader, made_cache
from lengthwise.subjects.reading import Ends, Tokens

if TYPE_CHECKING:
    from lengthwise.subjects.weights import Weights

DECODED = "decoding of replies from a cache"
_AFTER = " after a common beginning that is read once"
_SIDE_BY_SIDE = "replies to prompts of one length side by side"
_PADDED = "replies to prompts of several lengths side by side"
WORTH_SHARING = 32
"""Tokens that a reader must save to read a common beginning by itself."""
_OF_REPLIES = {
    "repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "suppress_tokens": None, "begin_suppress_tokens": None,
    "forced_bos_token_id": None, "forced_eos_token_id": None, "bad_words_ids": None, "sequence_bias": None,
    "min_length": 0, "min_new_tokens": None, "num_beams": 1, "guidance_scale": None, "penalty_alpha": None,
    "exponential_decay_length_penalty": None, "stop_strings": None,
}  # fmt: skip
"""What generation_config.json can say of replies besides how they are drawn, and what says nothing there."""


class Replies:
    """Greedy replies that are written side by side, a token of each at a time; the arguments are `Ends`."""

    def __init__(
        self,
        count: int,
        *,
        tokenizer: Any,
        new_tokens: int,
        stop_ids: frozenset[int] = frozenset(),
        at_least: int = 0,
        until: Callable[[str], bool] | None = None,
    ) -> None:
        self._left, self._stops, self._at_least = new_tokens, sorted(stop_ids), at_least
        self._until, self._tokenizer, self._tokens = until, tokenizer, [list[int]() for _ in range(count)]
        self._unfinished = set(range(count))
        self.chosen: list[Tensor] = []
        """The likeliest tokens [B] of each step, those after the end of a reply included."""

    def add(self, logits: Tensor) -> bool:
        """Add the likeliest token of each reply, from logits [B, V]. Return whether a reply is unfinished.

        NonFiniteLogits if a logit is NaN or infinite.
        """
        require_finite(logits)
        if len(self.chosen) < self._at_least:
            # A copy: full logits are what is compared with a plain pass.
            logits = logits.index_fill(1, torch.tensor(self._stops, device=logits.device), -torch.inf)
        self.chosen.append(logits.argmax(dim=-1))
        chosen = self.chosen[-1].tolist()
        for row in sorted(self._unfinished):
            if not (stopped := chosen[row] in self._stops):
                self._tokens[row].append(chosen[row])
            if stopped or (self._until is not None and self._until(self._text(row))):
                self._unfinished.remove(row)
        return not self.full and bool(self._unfinished)

    @property
    def full(self) -> bool:
        """Whether the replies have as many tokens as they may."""
        return len(self.chosen) == self._left

    @property
    def texts(self) -> list[str]:
        """The replies."""
        return [self._text(row) for row in range(len(self._tokens))]

    def _text(self, row: int) -> str:
        return self._tokenizer.decode(self._tokens[row], skip_special_tokens=True)


@torch.no_grad()
def write(model: Weights, prompts: Sequence[Tokens], *, at_once: int, **ends: Unpack[Ends]) -> list[str]:
    """See `Predictor.write`."""
    longest = max(map(len, prompts)) + ends["new_tokens"] - 1
    check_positions_fit(model.max_positions, longest, name=model.name)
    rows = sorted(set(prompts), key=lambda row: (-len(row), row))
    ends["stop_ids"] = ends.get("stop_ids", frozenset()) | _eos_ids(model)

    def empty(count: int) -> Replies:
        return Replies(count, tokenizer=model.tokenizer, **ends)

    if model.path.in_one_pass:
        found = _Shortcuts(model, rows, empty, longest - len(rows[0])).written(at_once)
    else:
        found = _along_the_path(model, rows, empty, longest)
    return [found[prompt] for prompt in prompts]


def unused_settings(model: Weights) -> list[str]:
    """What must be said of replies: settings of the model's generate() that would change them, and do not here."""
    settings: Any = unwrap(model.model).generation_config
    given = {name: getattr(settings, name, None) for name in _OF_REPLIES}
    found = [f"{name}={value}" for name, value in given.items() if value not in (None, _OF_REPLIES[name])]
    said = "replies are the likeliest tokens, without what its generation_config.json sets"
    return [f"{said}: {', '.join(found)}"] if found else []


def alike(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def decode(model: Weights, reader: PieceReader, last: Tensor, replies: Replies, *, all_of_it: bool) -> Tensor:
    """Write replies from a reader of their prompts: what the head takes for each token [B, N, ...].

    `last` [B, ...] is what it takes for the last tokens of the prompts. Nothing is in `replies` yet; with `all_of_it`
    they are written to the last token, whatever ends them.
    """
    states = [last]
    while replies.add(model.head.logits(states[-1])) or (all_of_it and not replies.full):
        states.append(reader.read(replies.chosen[-1][:, None])[:, -1])
    return torch.stack(states, dim=1)


class _Shortcuts:
    """Replies, written in the fastest way that gives the same as plain passes."""

    def __init__(
        self, model: Weights, rows: Sequence[Tokens], empty: Callable[[int], Replies], more: int
    ) -> None:
        self._model, self._rows, self._empty, self._more = model, list(rows), empty, more
        # What the smallest and the greatest in dictionary order begin with, all others begin with too.
        shared = min(alike(min(rows), max(rows)), len(rows[-1]) - 1)
        self._shared = shared if (len(rows) - 1) * shared >= WORTH_SHARING else 0
        self._beginning: PieceReader | None = None

    def written(self, at_once: int) -> dict[Tokens, str]:
        """The reply to each row."""
        proofs, found = self._model.proofs, dict[Tokens, str]()
        while self._rows:
            if not self._model.may_continue(DECODED):
                prompt = self._rows.pop(0)
                found[prompt] = self._plainly(prompt)
                continue
            if proofs.failed(DECODED + _AFTER):
                self._shared = 0
            shortcut, batch = self._next(at_once, _AFTER if self._shared else "")
            if (texts := self._quickly(shortcut, batch)) is not None:
                found |= dict(zip(batch, texts, strict=True))
                del self._rows[: len(batch)]
        return found

    def _next(self, at_once: int, after: str) -> tuple[str, list[Tokens]]:
        """The shortcut to take next, and the rows to write by it."""
        proofs, first = self._model.proofs, self._rows[0]
        if not proofs.covers(DECODED + after, len(first) + self._more):
            return DECODED + after, [first]
        batch = self._rows[:at_once]
        padded = not proofs.failed(_PADDED + after) and (not after or self._begun().takes_padding)
        if not padded:
            batch = [row for row in batch if len(row) == len(first)]
        if len(batch[-1]) < len(first):
            return _PADDED + after, batch
        if len(batch) > 1 and not proofs.failed(_SIDE_BY_SIDE + after):
            return _SIDE_BY_SIDE + after, batch
        return DECODED + after, [first]

    def _begun(self) -> PieceReader:
        """A reader of the common beginning."""
        if self._beginning is None:
            self._beginning = PieceReader(self._model)
            if self._shared:
                self._beginning.read(torch.tensor([self._rows[0][: self._shared]]))
        return self._beginning

    def _quickly(self, shortcut: str, batch: Sequence[Tokens]) -> list[str] | None:
        """The replies of a batch side by side; None if this is not what plain passes give."""
        tokens, padding = len(batch[0]) + self._more, len(batch[0]) - len(batch[-1])
        new = not self._model.proofs.covers(shortcut, tokens, padding)
        replies, last = self._empty(len(batch)), len(batch) == len(self._rows)
        # The row without padding, and that with most of it.
        looked_at = sorted({0, len(batch) - 1})

        def fast() -> Tensor:
            reader = (
                self._begun().fork(len(batch), keep=new or not last)
                if self._shared
                else PieceReader(self._model)
            )
            ids = np.zeros((len(batch), len(batch[0]) - self._shared), dtype=np.int64)
            real = torch.zeros(ids.shape, dtype=torch.long)
            for row, prompt in enumerate(batch):
                begin = len(batch[0]) - len(prompt)
                ids[row, begin:] = prompt[self._shared :]
                real[row, begin:] = 1
            states = decode(self._model, reader, reader.read(ids, real)[:, -1], replies, all_of_it=new)
            return states[looked_at].flatten(0, 1)

        def plain() -> Tensor:
            chosen = torch.stack(replies.chosen, dim=1).cpu().numpy()
            texts = [np.concatenate([batch[row], chosen[row, :-1]]) for row in looked_at]
            return torch.cat([self._model.plain_pass(text)[-chosen.shape[1] :] for text in texts])

        if self._model.proofs.take(shortcut, tokens, fast, plain, name=self._model.name, padding=padding):
            return replies.texts
        self._beginning = None
        return None

    def _plainly(self, prompt: Tokens) -> str:
        """The reply by one plain pass a token."""
        reply, tokens, goes_on = self._empty(1), list(prompt), True
        while goes_on:
            goes_on = reply.add(self._model.head.logits(self._model.plain_pass(tokens)[-1:]))
            tokens += reply.chosen[-1].tolist()
        return reply.texts[0]


def _along_the_path(
    model: Weights, rows: Sequence[Tokens], empty: Callable[[int], Replies], longest: int
) -> dict[Tokens, str]:
    """Replies decoded from the model's cache. Passes that all prompts have in common are made once."""
    passes = [model.path.pieces(len(row)) for row in rows]
    limit, shared, common = min(alike(min(rows), max(rows)), len(rows[-1]) - 1), 0, 0
    for sizes in zip(*passes, strict=False):
        if len(set(sizes)) > 1 or shared + sizes[0] > limit:
            break
        shared, common = shared + sizes[0], common + 1

    def begun() -> PieceReader:
        reader = PieceReader(model, cache=made_cache(model, longest))
        if shared:
            reader.read_passes(np.array([rows[0][:shared]]), passes[0][:common])
        return reader

    beginning, found = begun() if shared else None, dict[Tokens, str]()
    for row, own in zip(rows, passes, strict=True):
        reader = begun() if beginning is None else beginning.fork(keep=row is not rows[-1])
        last = reader.read_passes(np.array([row[shared:]]), own[common:])[-1][:, -1]
        decode(model, reader, last, reply := empty(1), all_of_it=False)
        [found[row]] = reply.texts
    return found


def _eos_ids(model: Weights) -> frozenset[int]:
    settings: Any = unwrap(model.model).generation_config
    owners = (settings, model.config, model.tokenizer)
    ids = [getattr(owner, "eos_token_id", None) for owner in owners]
    return frozenset(
        one for some in ids if some is not None for one in (some if isinstance(some, list) else [some])
    )
