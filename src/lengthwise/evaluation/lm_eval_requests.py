"""lm-eval's requests: their keys, sizes and batches; its own HF model with truncation in the middle; its replay."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.lm_eval_tasks import seed_everything
from lengthwise.evaluation.prompts import fit
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.measure.measurement import Item

if TYPE_CHECKING:
    from torch import nn

    from lengthwise.models import LoadedModel

# Reply tokens of a task that does not say how many; lm-eval's own number.
_REPLY = 256


@dataclass(frozen=True)
class Size:
    """Tokens of a request's prompt and of its reply at most, and how many of all are over the limit."""

    prompt: int
    reply: int
    over: int


def size_of(request: Any, tokenizer: Any, limit: int) -> Size:
    """The size of one request against `limit` (prompt and reply together).

    `loglikelihood_rolling` slides a window, so its texts are never too long.

    Raises:
        UsageError: the reply alone is as long as the limit.
    """
    if request.request_type == "generate_until":
        context, settings = request.args
        prompt, reply = _count(tokenizer, context), int(_generation(settings)["max_gen_toks"])
        if reply >= limit:
            raise UsageError(
                f"{request.task_name} writes up to {reply} tokens, and --max-length is {limit}",
                expected=f"room for prompt and reply together: more than {reply} tokens",
            )
        return Size(prompt, reply, max(0, prompt + reply - limit))
    if request.request_type == "loglikelihood":
        context, continuation = request.args
        # Without a context lm-eval puts BOS before what is ranked. The last token is not read.
        if context:
            tokens = _count(tokenizer, context + continuation)
        else:
            tokens = 1 + _count(tokenizer, continuation, bare=True)
        return Size(tokens - 1, 0, max(0, tokens - 1 - limit))
    return Size(_count(tokenizer, request.args[0]), 0, 0)


def _count(tokenizer: Any, text: str, *, bare: bool = False) -> int:
    """Tokens as lm-eval's HF model counts them: special ones as the tokenizer adds them, BOS not twice."""
    bos = tokenizer.bos_token
    special = not (bare or (bos and text.startswith(bos)))
    return len(tokenizer.encode(text, add_special_tokens=special, verbose=False))


def sampled(request: Any) -> bool:
    """Whether its reply is sampled, so that equal requests have different replies."""
    return request.request_type == "generate_until" and bool(_generation(request.args[1])["do_sample"])


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


def in_batches(items: Sequence[Item], size: int) -> list[list[Item]]:
    """Requests of one kind, up to `size` contexts at a time, the longest first.

    Requests of one context stay together, which lm-eval uses. A sampled reply is alone in its batch, so it does
    not depend on others.
    """
    drawn = [item for item in items if sampled(item.content.request)]
    others = [item for item in items if not sampled(item.content.request)]
    contexts = [list(some) for _, some in groupby(others, key=lambda item: item.content.request.args[0])]
    contexts.sort(key=lambda some: -len(some[0].content.request.args[0]))
    together = [
        [item for some in contexts[start : start + size] for item in some]
        for start in range(0, len(contexts), size)
    ]
    return [*together, *([item] for item in drawn)]


def _generation(settings: dict[str, Any]) -> dict[str, Any]:
    from lm_eval.models.utils import normalize_gen_kwargs

    return dict(normalize_gen_kwargs(settings, _REPLY))


@lru_cache(maxsize=1)
def harness_model(settings: EvaluationSettings, model: nn.Module, tokenizer: Any) -> Any:
    """An `lm_eval.models.huggingface.HFLM` of the model, which can also cut prompts in the middle."""
    from lm_eval.models import huggingface

    # Its decorator hides its type.
    base: Any = huggingface.HFLM

    class MiddleHFLM(base):
        def tok_batch_encode(
            self,
            strings: Any,
            padding_side: Any = "left",
            left_truncate_len: int | None = None,
            **options: Any,
        ) -> Any:
            if settings.truncation == "middle" and left_truncate_len:
                strings = [_without_middle(self.tokenizer, text, left_truncate_len) for text in strings]
            return super().tok_batch_encode(
                strings, padding_side=padding_side, left_truncate_len=left_truncate_len, **options
            )

    return MiddleHFLM(
        pretrained=model,
        tokenizer=tokenizer,
        max_length=settings.max_length,
        batch_size=settings.batch_size,
        device=str(next(model.parameters()).device),
    )


def answer(
    settings: EvaluationSettings, model: LoadedModel, keys: Sequence[str], requests: Sequence[Any]
) -> list[Any]:
    """lm-eval's answers to requests of one kind; a sampled reply has the seed of its key."""
    if sampled(requests[0]):
        seed_everything(zlib.crc32(f"{settings.seed}/{keys[0]}".encode()))
    harness = harness_model(settings, model.model, model.tokenizer)
    return getattr(harness, requests[0].request_type)(list(requests), disable_tqdm=True)


def replay(replies: Mapping[str, Any]) -> Any:
    """An `lm_eval.api.model.LM` that answers from `replies`, by key."""
    from lm_eval.api.model import LM

    class Replay(LM):
        def generate_until(self, requests: list[Any]) -> list[str]:
            return [replies[key] for key in keyed(requests)]

        def loglikelihood(self, requests: list[Any]) -> list[tuple[float, bool]]:
            return [(value, greedy) for value, greedy in (replies[key] for key in keyed(requests))]

        def loglikelihood_rolling(self, requests: list[Any]) -> list[float]:
            return [replies[key] for key in keyed(requests)]

    return Replay()


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
