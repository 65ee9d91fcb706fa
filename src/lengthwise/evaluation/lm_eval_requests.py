"""lm-eval's own HF model around ours: logged requests, explicit limits, truncation in the middle."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.lm_eval_tasks import seed_everything
from lengthwise.evaluation.prompts import fit, refuse_over_limit
from lengthwise.progress import progress

if TYPE_CHECKING:
    from lengthwise.evaluation.evaluate import EvalSpec
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog

Place = tuple[str, int]
"""Task and document."""

# Reply tokens of a task that does not say how many; lm-eval's own number.
_REPLY = 256


@dataclass(frozen=True)
class Size:
    """Tokens of a request's prompt and of its reply at most, and how many of all are over the limit."""

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
        """The size of one request. `loglikelihood_rolling` slides a window, so its texts are never too long."""
        key = request_key(request)
        if key not in self._sizes:
            self._sizes[key] = self._measured(request)
        return self._sizes[key]

    def note(self, requests: Sequence[Any]) -> None:
        """Count the cuts of these requests.

        Raises:
            UsageError: some are over the limit, and no truncation that works is chosen.
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
                f"{ranked} of {len(requests)} prompts of {names} are too long, and lm-eval cuts prompts with ranked "
                "answers only at the beginning",
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
    """Whether its reply is sampled, so that equal requests have different replies."""
    return request.request_type == "generate_until" and bool(_settings(request.args[1])["do_sample"])


def request_key(request: Any) -> str:
    """The request's key in the log: its kind, and a hash of its content."""
    plain = json.dumps([request.request_type, request.args], sort_keys=True, default=str)
    return f"{request.request_type}/{hashlib.sha256(plain.encode()).hexdigest()[:24]}"


def keyed(requests: Sequence[Any]) -> list[str]:
    """The key of each. Equal requests share one, unless their replies are sampled."""
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

    Requests of one context stay together, which lm-eval uses. A sampled reply is alone in its batch, so it does
    not depend on others.
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


def logged_model(spec: EvalSpec, model: LoadedModel, log: SampleLog, limits: Limits) -> Any:
    """An `lm_eval.models.huggingface.HFLM` that reads finished requests from `log` and logs the others."""
    from lm_eval.models import huggingface

    # Its decorator hides its type.
    base: Any = huggingface.HFLM

    class LoggedHFLM(base):
        def __init__(self) -> None:
            super().__init__(
                pretrained=model.model,
                tokenizer=model.tokenizer,
                max_length=spec.max_length,
                batch_size=spec.batch_size,
                device=str(model.device),
            )

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            answer = super().generate_until
            return self._answered(requests, lambda some: answer(some, disable_tqdm=True))

        def loglikelihood(self, requests: list[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
            answer = super().loglikelihood
            found = self._answered(requests, lambda some: answer(some, disable_tqdm=True))
            return [(value, greedy) for value, greedy in found]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> list[float]:
            answer = super().loglikelihood_rolling
            return self._answered(requests, lambda some: answer(some, disable_tqdm=True))

        def tok_batch_encode(
            self,
            strings: Any,
            padding_side: Any = "left",
            left_truncate_len: int | None = None,
            **options: Any,
        ) -> Any:
            if spec.truncation == "middle" and left_truncate_len:
                strings = [_without_middle(self.tokenizer, text, left_truncate_len) for text in strings]
            return super().tok_batch_encode(
                strings, padding_side=padding_side, left_truncate_len=left_truncate_len, **options
            )

        def _answered(self, requests: list[Any], answer: Callable[[list[Any]], list[Any]]) -> list[Any]:
            limits.note(requests)
            keys = keyed(requests)
            open_requests = {key: one for key, one in zip(keys, requests, strict=True) if key not in log}
            total = len(set(keys))
            with progress((), what="requests", total=total, initial=total - len(open_requests)) as bar:
                for some in batches(open_requests, spec.batch_size):
                    if sampled(some[0][1]):
                        seed_everything(zlib.crc32(f"{spec.seed}/{some[0][0]}".encode()))
                    replies = answer([request for _, request in some])
                    for (key, request), reply in zip(some, replies, strict=True):
                        log.append(key, {"task": request.task_name, "reply": reply})
                    bar.update(len(some))
            return [log[key]["reply"] for key in keys]

    return LoggedHFLM()


def _without_middle(tokenizer: Any, text: str, limit: int) -> str:
    """The text without its middle: at most `limit` tokens when it is tokenised again."""
    kept = limit
    while True:
        prompt = fit(tokenizer, text, kept, "middle")
        if not prompt.cut:
            return text
        shorter = tokenizer.decode(prompt.ids, skip_special_tokens=True)
        over = len(tokenizer(shorter, verbose=False).input_ids) - limit
        if over <= 0:
            return shorter
        kept -= over
