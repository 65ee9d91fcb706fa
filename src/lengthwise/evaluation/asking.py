"""Ask the model every question that is not answered yet, score the answers, and log each as it is finished."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.decoding import likelihoods, replies
from lengthwise.progress import progress

if TYPE_CHECKING:
    from lengthwise.evaluation.own_tasks import Asked
    from lengthwise.models import Predictor
    from lengthwise.samples import SampleLog


def ask(
    model: Predictor, asked: Sequence[Asked], log: SampleLog, *, likelihood: bool, batch_size: int
) -> None:
    """Fill `log` with every question of `asked`: its score, and the reply or (`likelihood`) the ranked answers.

    Questions on one context are read together, the others in batches of nearly equal length. The longest come
    first, so that too little memory shows at once. The batches do not depend on what is logged, so a resumed run
    rounds like an uninterrupted one: if a batch was logged in part, all of it is read again, and the rest logged.

    Raises:
        UsageError: the log holds other questions, or more tokens than the model's table of positions has.
        NonFiniteLogits: logits that are NaN or infinite.
    """
    for one in asked:
        if one.question.key in log:
            one.check_logged(log[one.question.key])
    model.check_ready(max(map(_room, asked), default=0))
    groups = [
        group
        for group in _groups(asked, 1 if likelihood else batch_size)
        if any(one.question.key not in log for one in group)
    ]
    done = len(asked) - sum(map(len, groups))
    groups = log.share(groups)
    total = done + sum(map(len, groups))
    with progress(groups, what="questions", total=total, initial=done) as bar:
        for group in groups:
            records = (_ranked if likelihood else _replied)(model, group, batch_size)
            for one, record in zip(group, records, strict=True):
                if one.question.key not in log:
                    log.append(one.question.key, {**one.logged, **record})
            bar.update(len(group))
    log.gather()


def _room(one: Asked) -> int:
    longest = max(map(len, one.answers)) if one.answers else one.question.new_tokens
    return len(one.prompt.ids) + longest - 1


def _groups(asked: Sequence[Asked], batch_size: int) -> Iterator[list[Asked]]:
    """All questions of one context; or up to `batch_size` questions of one task, each with its own context."""
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


def _ranked(model: Predictor, group: Sequence[Asked], batch_size: int) -> list[dict[str, Any]]:
    found = likelihoods(
        model, [one.prompt.ids for one in group], [one.answers for one in group], batch_size=batch_size
    )
    return [_ranking(one, scores) for one, scores in zip(group, found, strict=True)]


def _ranking(one: Asked, scores: Sequence[float]) -> dict[str, Any]:
    candidates = one.question.candidates
    gold = candidates.index(one.question.golds[0])
    top = max(scores)
    shares = [math.exp(score - top) for score in scores]
    total = sum(shares)
    return {
        "score": float(scores[gold] == top and scores.count(top) == 1),
        "probability": shares[gold] / total,
        # Of the log-likelihoods, so that it stays finite where the probability underflows.
        "gold_loss": top - scores[gold] + math.log(total),
        "chance": 1 / len(candidates),
        "likelihoods": dict(zip(candidates, scores, strict=True)),
    }


def _replied(model: Predictor, group: Sequence[Asked], batch_size: int) -> list[dict[str, Any]]:
    task = group[0].task
    stop = model.tokenizer(task.stop_text, add_special_tokens=False).input_ids[-1:] if task.stop_text else []
    found = replies(
        model,
        [one.prompt.ids for one in group],
        new_tokens=max(one.question.new_tokens for one in group),
        batch_size=batch_size,
        stop_ids=frozenset(stop),
        at_least=len(stop),
        until=task.is_over,
    )
    return [
        {"score": task.score(one.question, reply.text), "reply": reply.text}
        for one, reply in zip(group, found, strict=True)
    ]
