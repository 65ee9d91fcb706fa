"""What lm-eval asks a model: how many tokens each request takes, which are over the limit, in which batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.prompts import refuse_over_limit

Place = tuple[str, int]
"""Task and document."""

# Reply tokens of a task that does not say how many; lm-eval's own number.
_REPLY = 256


@dataclass(frozen=True)
class Size:
    """Tokens that the model would read before a reply, those it may write, and how many of all are over the limit."""

    prompt: int
    reply: int
    over: int


class Limits:
    """Measures requests against `max_length` (prompt and reply together), refuses or counts those over it."""

    def __init__(self, tokenizer: Any, *, max_length: int, truncation: str | None) -> None:
        self._tokenizer = tokenizer
        self._max_length = max_length
        self._truncation = truncation
        self._sizes: dict[str, Size] = {}
        self.cuts: dict[Place, int] = {}
        """Tokens cut out of the prompts of each document."""

    def size(self, request: Any) -> Size:
        """The size of one request. Windows of `loglikelihood_rolling` slide, so its texts are never too long."""
        key = request_key(request)
        if key not in self._sizes:
            self._sizes[key] = self._measured(request)
        return self._sizes[key]

    def note(self, requests: Sequence[Any]) -> None:
        """Count the cuts of these requests.

        Raises:
            UsageError: some are over the limit and no truncation is chosen, or none that works.
        """
        over = [request for request in requests if self.size(request).over]
        if over:
            self._check(requests, over)
        for request in requests:
            place = (request.task_name, request.doc_id)
            self.cuts[place] = max(self.size(request).over, self.cuts.get(place, 0))

    def _check(self, requests: Sequence[Any], over: Sequence[Any]) -> None:
        names = ", ".join(dict.fromkeys(request.task_name for request in over))
        if self._truncation is None:
            sizes = [self.size(request).over + self._max_length for request in over]
            raise refuse_over_limit(f"{names} (replies counted)", sizes, len(requests), self._max_length)
        ranked = sum(request.request_type == "loglikelihood" for request in over)
        if self._truncation == "middle" and ranked:
            raise UsageError(
                f"{ranked} of {len(requests)} prompts of {names} are too long, and lm-eval cuts prompts whose "
                "answers are ranked at their beginning only",
                fix="--truncation left, or a greater --max-length",
            )

    def _measured(self, request: Any) -> Size:
        limit = self._max_length
        if request.request_type == "generate_until":
            context, settings = request.args
            prompt, reply = self._count(context), _reply_tokens(settings)
            if reply >= limit:
                raise UsageError(
                    f"{request.task_name} writes up to {reply} tokens, and --max-length is {limit}",
                    expected=f"room for prompt and reply together: more than {reply} tokens",
                )
            return Size(prompt, reply, max(0, prompt + reply - limit))
        if request.request_type == "loglikelihood":
            context, continuation = request.args
            # Without a context lm-eval puts BOS before what is ranked. The last token is not read.
            tokens = (
                self._count(context + continuation) if context else 1 + self._count(continuation, bare=True)
            )
            return Size(tokens - 1, 0, max(0, tokens - 1 - limit))
        return Size(self._count(request.args[0]), 0, 0)

    def _count(self, text: str, *, bare: bool = False) -> int:
        """Tokens as lm-eval's HF model counts them: special ones as the tokenizer adds them, BOS not twice."""
        bos = self._tokenizer.bos_token
        if bare or (bos and text.startswith(bos)):
            return len(self._tokenizer.encode(text, add_special_tokens=False, verbose=False))
        return len(self._tokenizer.encode(text, verbose=False))


def sampled(request: Any) -> bool:
    """Whether its reply is drawn at random, so that equal requests have replies of their own."""
    return request.request_type == "generate_until" and bool(_settings(request.args[1])["do_sample"])


def request_key(request: Any) -> str:
    """What the log knows a request by: its kind, and a hash of all that it says."""
    plain = json.dumps([request.request_type, request.args], sort_keys=True, default=str)
    return f"{request.request_type}/{hashlib.sha256(plain.encode()).hexdigest()[:24]}"


def keyed(requests: Sequence[Any]) -> list[str]:
    """The key of each; equal requests share one, unless their replies are drawn at random."""
    counts: dict[str, int] = {}
    keys: list[str] = []
    for request in requests:
        key = request_key(request)
        if sampled(request):
            counts[key] = counts.get(key, 0) + 1
            key = f"{key}/{counts[key]}"
        keys.append(key)
    return keys


def batches(requests: dict[str, Any], size: int) -> Iterator[list[tuple[str, Any]]]:
    """Requests by key, up to `size` contexts at a time, the longest first.

    Those of one context stay together, which lm-eval makes use of. A reply that is drawn at random is alone, so
    that it does not depend on its neighbours.
    """
    drawn = [item for item in requests.items() if sampled(item[1])]
    others = [item for item in requests.items() if not sampled(item[1])]
    contexts = [list(some) for _, some in groupby(others, key=lambda item: item[1].args[0])]
    contexts.sort(key=lambda some: -len(some[0][1].args[0]))
    for start in range(0, len(contexts), size):
        yield [item for some in contexts[start : start + size] for item in some]
    for item in drawn:
        yield [item]


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    from lm_eval.models.utils import normalize_gen_kwargs

    return dict(normalize_gen_kwargs(settings, _REPLY))


def _reply_tokens(settings: dict[str, Any]) -> int:
    return int(_settings(settings)["max_gen_toks"])
