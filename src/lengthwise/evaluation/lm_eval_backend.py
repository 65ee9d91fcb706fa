"""lm-eval's tasks as a backend of `lengthwise eval`, with its scores as rows of our schema.

The items are its requests, answered by its own HF model; its scores are made from all replies at the end.
`max_length` is passed on; otherwise lm-eval would read the trained length from the configuration and cut every
longer prompt to it. Prompts over the limit are refused before the model is asked anything; with a truncation they
are counted: left is lm-eval's own, middle keeps both ends of prompts with replies.

Local copies of data sets: with `data` lm-eval runs in that folder, where a data set `owner/name` is the folder
of that name in the hub's layout. Task files (YAML) in it are known by name too.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import logging
import math
import os
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any, cast

from transformers import set_seed

from lengthwise.errors import LengthwiseError, MissingError, UsageError
from lengthwise.evaluation.lm_eval_tasks import load_numbers, load_tasks
from lengthwise.evaluation.task import fit, refuse_over_limit
from lengthwise.measure.measurement import Item, Record, in_groups
from lengthwise.subjects import weights_of

if TYPE_CHECKING:
    from lengthwise.subjects import Predictor


def items(settings: Any, tokenizer: Any) -> list[Item]:
    """The requests of all tasks.

    Raises:
        MissingError, UsageError: as `load_tasks`; a reply as long as the limit, or prompts over it that are not cut.
    """
    limit, found = settings.max_length, []
    with _surroundings(settings):
        for length, loaded in load_tasks(settings, tokenizer):
            for key, request in _keyed(length, _requests(settings, loaded)):
                prompt, reply = _size(request, tokenizer, limit)
                rolling = request.request_type == "loglikelihood_rolling"
                over = 0 if rolling else max(0, prompt + reply - limit)
                facts = {
                    "document": str(request.doc_id),
                    "task": request.task_name,
                    "length": length,
                    "question": zlib.crc32(json.dumps(request.args, sort_keys=True, default=str).encode()),
                    "tokens": prompt,
                    "cut": over,
                }
                if over and settings.truncation == "middle" and reply:
                    text, options = request.args
                    shorter = _without_middle(tokenizer, text, limit - reply)
                    request = replace(request, arguments=(shorter, options))
                sizes = {"tokens": prompt + reply - over, "longest": min(prompt, limit), "stretch": 0}
                found.append(Item(key=key, facts=facts, content=request, **sizes))
    over_limit = [item for item in found if item.facts["cut"]]
    names = ", ".join(dict.fromkeys(item.facts["task"] for item in over_limit))
    if over_limit and settings.truncation is None:
        sizes = [limit + item.facts["cut"] for item in over_limit]
        raise refuse_over_limit(f"{names} (replies counted)", sizes, len(found), limit)
    ranked = sum(item.content.request_type == "loglikelihood" for item in over_limit)
    if ranked and settings.truncation == "middle":
        raise UsageError(
            f"{ranked} of {len(found)} prompts of {names} are too long, and lm-eval cuts prompts with ranked "
            "answers only at the beginning",
            fix="--truncation left, or a greater --max-length",
        )
    return found


def batches(settings: Any, items: Sequence[Item]) -> list[list[Item]]:
    """Requests of one kind, up to `batch_size` contexts at a time, the longest first.

    Requests on one context stay together, which lm-eval uses. A sampled reply is alone in its batch, so it does
    not depend on others.
    """
    found: list[list[Item]] = []
    for kind in dict.fromkeys(item.content.request_type for item in items):
        own = [item for item in items if item.content.request_type == kind]
        drawn = [[item] for item in own if _sampled(item.content)]
        rest = [item for item in own if not _sampled(item.content)]
        contexts = [list(some) for _, some in groupby(rest, key=lambda item: item.content.args[0])]
        contexts.sort(key=lambda some: -some[0].facts["tokens"])
        together = in_groups(contexts, settings.batch_size)
        found += [[item for some in group for item in some] for group in together] + drawn
    return found


def score(settings: Any, model: Predictor, items: Sequence[Item]) -> list[Record]:
    """The replies to a batch of requests; a sampled reply has the seed of its key.

    Raises:
        LengthwiseError: a log-likelihood is NaN or infinite.
    """
    weights = weights_of(model, needs="this backend asks for logits", fix="--backend native")
    requests = [item.content for item in items]
    if _sampled(requests[0]):
        set_seed(zlib.crc32(f"{settings.seed}/{items[0].key}".encode()))
    with _surroundings(settings):
        ask = getattr(_harness(settings, weights.model, weights.tokenizer), requests[0].request_type)
        found = list(ask(requests, disable_tqdm=True))
    for item, reply in zip(items, found, strict=True):
        number = reply[0] if isinstance(reply, list | tuple) else reply
        if not isinstance(number, str) and not math.isfinite(number):
            raise LengthwiseError(
                f"{model.name} gives the log-likelihood {number} in {item.key}",
                expected="a finite number",
                fix="check the weights, or load the model with dtype float32",
            )
    return [{"reply": reply} for reply in found]


def finish(
    settings: Any, tokenizer: Any, items: Sequence[Item], records: Mapping[str, Record]
) -> dict[str, Record]:
    """lm-eval's scores: a record for each number, with the samples' scores where it is their mean."""
    from lm_eval.evaluator import evaluate

    facts = [item.facts for item in items if item.facts["cut"]]
    cut = {(each["task"], each["length"], each["document"]) for each in facts}
    numbers: list[Record] = []
    tasks: dict[str, Any] = {}
    with _surroundings(settings):
        for length, loaded in load_tasks(settings, tokenizer):
            set_seed(settings.seed)
            found: Any = evaluate(
                lm=_replay(length, records), task_dict=loaded, limit=settings.samples, bootstrap_iters=0
            )
            numbers += load_numbers(length, loaded["groups"], found, cut)
            for name, config in found["configs"].items():
                before = tasks.get(name, {}).get("questions", 0)
                tasks[name] = {
                    "version": found["versions"].get(name),
                    "data_set": config.get("dataset_path"),
                    "config": config.get("dataset_name"),
                    "questions": found["n-samples"][name]["effective"] + before,
                }
    scores = {f"score/{index:06d}": record for index, record in enumerate(numbers)}
    return scores | {"tasks": {"tasks": tasks, "lm_eval": importlib.metadata.version("lm_eval")}}


def _requests(settings: Any, loaded: Mapping[str, Any]) -> Iterator[Any]:
    """All requests of the tasks, each repeated as often as it is asked."""
    for task in loaded["tasks"].values():
        task.build_all_requests(limit=settings.samples, rank=0, world_size=1)
        for request in task.instances:
            yield from [request] * request.repeats
        # `evaluate` builds the requests again, and draws the examples of prompts again.
        task.set_fewshot_seed(seed=settings.seed)


def _keyed(length: int | None, requests: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    """Each request with the name of its record: its kind, task, length and document, and a count."""
    counts: Counter[str] = Counter()
    for request in requests:
        place = f"{request.request_type}/{request.task_name}/L{length or 0}/d{request.doc_id}/{request.idx}"
        counts[place] += 1
        yield f"{place}/{counts[place]}", request


def _size(request: Any, tokenizer: Any, limit: int) -> tuple[int, int]:
    """Tokens of a request's prompt, and of its reply at most.

    Tokens are counted as lm-eval's HF model counts them: special ones as the tokenizer adds them, BOS not twice.

    Raises:
        UsageError: the reply alone is as long as the limit.
    """

    def count(text: str, *, bare: bool = False) -> int:
        bos = tokenizer.bos_token
        special = not (bare or (bos and text.startswith(bos)))
        return len(tokenizer.encode(text, add_special_tokens=special, verbose=False))

    text, reply = request.args[0], 0
    if request.request_type == "generate_until":
        reply = int(_generation(request)["max_gen_toks"])
        if reply >= limit:
            raise UsageError(
                f"{request.task_name} writes up to {reply} tokens, and --max-length is {limit}",
                expected=f"room for prompt and reply together: more than {reply} tokens",
            )
    elif request.request_type == "loglikelihood":
        # Without a context lm-eval puts BOS before what is ranked. The last token is not read.
        return count(text + request.args[1]) - 1 if text else count(request.args[1], bare=True), 0
    # `loglikelihood_rolling` slides a window over the text.
    return count(text), reply


def _generation(request: Any) -> dict[str, Any]:
    from lm_eval.models.utils import normalize_gen_kwargs

    return dict(normalize_gen_kwargs(request.args[1]))


def _sampled(request: Any) -> bool:
    return request.request_type == "generate_until" and bool(_generation(request)["do_sample"])


@lru_cache(maxsize=1)
def _harness(settings: Any, model: Any, tokenizer: Any) -> Any:
    """lm-eval's own wrapper of the model."""
    from lm_eval.models import huggingface

    # Its decorator hides its parameters.
    return cast("Any", huggingface.HFLM)(
        pretrained=model,
        tokenizer=tokenizer,
        max_length=settings.max_length,
        batch_size=settings.batch_size,
        device=str(next(model.parameters()).device),
    )


def _without_middle(tokenizer: Any, text: str, limit: int) -> str:
    """The text without its middle: at most `limit` tokens when it is tokenised again."""
    kept = limit
    while True:
        ids, cut = fit(tokenizer, text, kept, "middle")
        if not cut:
            return text
        shorter = tokenizer.decode(ids, skip_special_tokens=True)
        over = len(tokenizer(shorter, verbose=False).input_ids) - limit
        if over <= 0:
            return shorter
        kept -= over


def _replay(length: int | None, records: Mapping[str, Record]) -> Any:
    """An `lm_eval.api.model.LM` that gives the replies of the records."""
    from lm_eval.api.model import LM

    def replies(self: Any, requests: list[Any]) -> list[Any]:
        found = [records[key]["reply"] for key, _ in _keyed(length, requests)]
        return [tuple(reply) if isinstance(reply, list) else reply for reply in found]

    kinds = ("generate_until", "loglikelihood", "loglikelihood_rolling")
    return type("Replay", (LM,), dict.fromkeys(kinds, replies))()


@contextlib.contextmanager
def _surroundings(settings: Any) -> Iterator[None]:
    """In the folder of the data, without lm-eval's warnings and its dozens of lines about each task."""
    folder = settings.data or os.curdir
    if not os.path.isdir(folder):
        raise MissingError(f"there is no folder {folder}", expected="data sets in the hub's layout")
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    with warnings.catch_warnings(), contextlib.chdir(folder), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("ignore")
        yield
