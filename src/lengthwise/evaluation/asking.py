"""Ask the model what is not answered yet, score, and log each question as it is finished."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.generate import Reply, likelihoods, replies
from lengthwise.evaluation.longbench_e import DATA_SETS, score_reply
from lengthwise.evaluation.preparing import Asked, Prepared, check_logged
from lengthwise.evaluation.questions import Mode
from lengthwise.evaluation.scoring import babilong_match, contained_share
from lengthwise.measure.running import check_model
from lengthwise.progress import progress

if TYPE_CHECKING:
    from lengthwise.models import LoadedModel
    from lengthwise.samples import SampleLog


def ask(model: LoadedModel, prepared: Prepared, log: SampleLog, *, mode: Mode, batch_size: int) -> None:
    """Fill `log` with every question of `prepared`: its score, and the reply or the likelihoods.

    Questions on one context are asked together, the others in batches of nearly equal length; the longest come
    first, so that memory that does not suffice shows at once. What is asked together does not depend on what is
    logged, so a resumed run rounds as one at a go: of a group that was logged in part, all are asked again, and
    those that lack are logged.

    Raises:
        UsageError: the log holds other questions; more tokens than a learned table of positions has.
        LengthwiseError: logits that are not finite.
    """
    for one in prepared.asked:
        if one.question.key in log:
            check_logged(log[one.question.key], one)
    check_model(model, longest=max((_room(one) for one in prepared.asked), default=0))
    groups = [
        group
        for group in _groups(prepared.asked, batch_size if mode == "greedy" else 1)
        if any(one.question.key not in log for one in group)
    ]
    done = len(prepared.asked) - sum(map(len, groups))
    with progress(groups, what="questions", total=len(prepared.asked), initial=done) as bar:
        for group in groups:
            records = (
                _ranked(model, group, batch_size)
                if mode == "likelihood"
                else _replied(model, group, batch_size)
            )
            for one, record in zip(group, records, strict=True):
                if one.question.key not in log:
                    log.append(one.question.key, {**_about(one), **record})
            bar.update(len(group))


def _room(one: Asked) -> int:
    longest = max(map(len, one.answers)) if one.answers else one.question.new_tokens
    return len(one.prompt.ids) + longest - 1


def _groups(asked: Sequence[Asked], batch_size: int) -> Iterator[list[Asked]]:
    """Questions of one context; or up to `batch_size` of one task that have each their own."""
    by_context: dict[str, list[Asked]] = {}
    for one in asked:
        by_context.setdefault(one.question.context, []).append(one)
    contexts = sorted(
        by_context.values(),
        key=lambda group: (
            len(group) > 1,
            group[0].task.name,
            -len(group[0].prompt.ids),
            group[0].question.key,
        ),
    )
    for (several, _), alike in groupby(contexts, key=lambda group: (len(group) > 1, group[0].task.name)):
        some = list(alike)
        if several:
            yield from some
            continue
        singles = [one for group in some for one in group]
        for start in range(0, len(singles), batch_size):
            yield singles[start : start + batch_size]


def _about(one: Asked) -> dict[str, Any]:
    question = one.question
    return {
        "document": question.unit,
        "task": one.task.name,
        "crc": one.crc,
        "tokens": len(one.prompt.ids),
        "cut": one.prompt.cut,
    }


def _ranked(model: LoadedModel, group: Sequence[Asked], batch_size: int) -> list[dict[str, Any]]:
    found = likelihoods(
        model, [one.prompt.ids for one in group], [one.answers for one in group], batch_size=batch_size
    )
    return [_ranking(one, scores) for one, scores in zip(group, found, strict=True)]


def _ranking(one: Asked, scores: Sequence[float]) -> dict[str, Any]:
    candidates = one.question.candidates
    gold = candidates.index(one.question.golds[0])
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    return {
        "score": float(scores[gold] == top and scores.count(top) == 1),
        "probability": shares[gold] / sum(shares),
        "chance": 1 / len(candidates),
        "likelihoods": dict(zip(candidates, scores, strict=True)),
    }


def _replied(model: LoadedModel, group: Sequence[Asked], batch_size: int) -> list[dict[str, Any]]:
    task = group[0].task
    stop_ids, at_least = frozenset[int](), 0
    if task.part == "samsum":
        # As upstream: it also ends at a newline, and has one token at least.
        stop_ids, at_least = frozenset(model.tokenizer("\n", add_special_tokens=False).input_ids[-1:]), 1
    found = replies(
        model,
        [one.prompt.ids for one in group],
        new_tokens=max(one.question.new_tokens for one in group),
        batch_size=batch_size,
        stop_ids=stop_ids,
        at_least=at_least,
        until=_until(group[0]),
    )
    return [
        {"score": _score(one, reply), "reply": reply.text} for one, reply in zip(group, found, strict=True)
    ]


def _until(one: Asked) -> Callable[[str], bool] | None:
    """When the rest of a reply cannot change its score any more."""
    if one.task.kind == "longbench_e" and DATA_SETS[one.task.part].first_line:
        return lambda text: "\n" in text.lstrip("\n")
    if one.task.stops_at:
        return lambda text: any(mark in text for mark in one.task.stops_at)
    return None


def _score(one: Asked, reply: Reply) -> float:
    question, task = one.question, one.task
    if task.kind == "babilong":
        return float(babilong_match(reply.text, question.golds[0], question.about, question.candidates))
    if task.kind == "needle":
        return contained_share(reply.text, question.golds)
    return score_reply(DATA_SETS[task.part], reply.text, question.golds, question.classes)
