"""lm-eval's own HF model around ours: logged requests, explicit limits, cuts in the middle."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.harness.requests import Limits, batches, keyed, sampled
from lengthwise.evaluation.harness.tasks import seed_everything
from lengthwise.evaluation.prompts import fit
from lengthwise.progress import progress

if TYPE_CHECKING:
    from lengthwise.evaluation.job import EvalJob
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog


def logged_model(job: EvalJob, model: LoadedModel, log: SampleLog, limits: Limits) -> Any:
    """An `lm_eval.models.huggingface.HFLM` that answers from `log` what is in it, and logs the rest as it goes."""
    from lm_eval.models import huggingface

    # Its decorator hides its type.
    base: Any = huggingface.HFLM

    class LoggedHFLM(base):
        def __init__(self) -> None:
            super().__init__(
                pretrained=model.model,
                tokenizer=model.tokenizer,
                max_length=job.max_length,
                batch_size=job.batch_size,
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
            if job.truncation == "middle" and left_truncate_len:
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
                for some in batches(open_requests, job.batch_size):
                    if sampled(some[0][1]):
                        seed_everything(zlib.crc32(f"{job.seed}/{some[0][0]}".encode()))
                    replies = answer([request for _, request in some])
                    for (key, request), reply in zip(some, replies, strict=True):
                        log.append(key, {"task": request.task_name, "reply": reply})
                    bar.update(len(some))
            return [log[key]["reply"] for key in keys]

    return LoggedHFLM()


def _without_middle(tokenizer: Any, text: str, limit: int) -> str:
    """The text without its middle, so that it has `limit` tokens at most when it is tokenised again."""
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
