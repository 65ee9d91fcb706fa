"""Our own tasks: questions as items, asked in groups with a common context, scored."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lengthwise.errors import UsageError
from lengthwise.evaluation.family import Question, QuestionSet, Task, questions_sha256
from lengthwise.evaluation.prompts import OverLimit, Prompt, answer_tokens, fit, refuse_over_limit
from lengthwise.evaluation.scores import run_notes, run_statistics, score_rows
from lengthwise.evaluation.settings import EvaluationSettings
from lengthwise.evaluation.tasks import resolve_tasks
from lengthwise.measure.measurement import Item, Record
from lengthwise.measure.statistics import Statistic
from lengthwise.results import Results, Row

if TYPE_CHECKING:
    from lengthwise.models import Predictor
    from lengthwise.text import Corpus


@dataclass(frozen=True)
class Asked:
    """A question as the model reads it."""

    task: Task
    question: Question
    prompt: Prompt
    answers: tuple[tuple[int, ...], ...]
    """Tokens of the candidates, if they are ranked."""
    facts: Mapping[str, Any]
    """What a result records of the task's questions."""


def items(settings: EvaluationSettings, tokenizer: Any, corpus: Corpus | None) -> list[Item]:
    """Questions and prompts of all tasks; `corpus` is the background of those that are made up.

    Raises:
        UsageError, MissingError: the data, or prompts over the limit without a truncation.
    """
    tasks = resolve_tasks(settings.tasks)
    _check_text_holds(settings, tasks, corpus)
    found: list[Item] = []
    for task in tasks:
        for one in _fitted(settings, task, tokenizer, task.question_set(settings, tokenizer, corpus)):
            question, prompt = one.question, one.prompt
            answer = max(map(len, one.answers)) if one.answers else question.new_tokens
            plain = json.dumps([prompt.ids, one.answers, question.golds])
            facts = {
                "document": question.unit,
                "task": task.name,
                "version": task.version,
                "length": question.length,
                "depth": question.depth,
                "bucket": question.bucket,
                "reached": question.reached,
                "question": zlib.crc32(json.dumps(question.to_dict(), sort_keys=True).encode()),
                "prompt": zlib.crc32(plain.encode()),
                "tokens": len(prompt.ids),
                "cut": prompt.cut,
            }
            after = sum(map(len, one.answers)) if one.answers else question.new_tokens
            found.append(
                Item(
                    key=question.key,
                    facts=facts,
                    content=one,
                    tokens=len(prompt.ids) + after,
                    longest=len(prompt.ids) + answer - 1,
                    stretch=0,
                )
            )
    return found


def _check_text_holds(settings: EvaluationSettings, tasks: Sequence[Task], corpus: Corpus | None) -> None:
    """Raise UsageError if prompts need more tokens than the text has characters: making them may never end."""
    if corpus is None or not any("lengths" in task.takes for task in tasks):
        return
    characters, longest = sum(len(document.text) for document in corpus.documents), max(settings.lengths)
    if longest > characters:
        raise UsageError(
            f"--length is {longest} tokens, and the text {corpus.name} has {characters} characters",
            expected=f"at most {characters}",
            fix="use a shorter length, or more text",
        )


def _fitted(settings: EvaluationSettings, task: Task, tokenizer: Any, wanted: QuestionSet) -> list[Asked]:
    limit = settings.max_length if task.cut_to_limit else None
    found: list[Asked] = []
    over: list[int] = []
    for question in wanted.questions:
        try:
            prompt = fit(tokenizer, question.prompt, limit, settings.truncation, chat=wanted.chat)
        except OverLimit as error:
            over.append(error.tokens)
            continue
        answers = ()
        if settings.mode == "likelihood":
            answers = tuple(
                answer_tokens(tokenizer, question.prompt, f" {candidate}")
                for candidate in question.candidates
            )
        found.append(Asked(task, question, prompt, answers, wanted.facts))
    if over:
        assert limit is not None
        raise refuse_over_limit(task.name, over, len(wanted.questions), limit)
    return found


def batches(settings: EvaluationSettings, items: Sequence[Item]) -> list[list[Item]]:
    """All questions of one context; or up to `batch_size` questions of one task, each with its own context.

    Batches of one task are of nearly equal length, the longest first.
    """
    size = 1 if settings.mode == "likelihood" else settings.batch_size
    by_context: dict[str, list[Item]] = {}
    for item in items:
        by_context.setdefault(item.content.question.context, []).append(item)
    contexts = sorted(
        by_context.values(),
        key=lambda group: (len(group) > 1, group[0].facts["task"], -group[0].facts["tokens"], group[0].key),
    )
    found: list[list[Item]] = []
    for (several, _), alike in groupby(contexts, key=lambda group: (len(group) > 1, group[0].facts["task"])):
        some = list(alike)
        if several:
            found += some
            continue
        singles = [item for group in some for item in group]
        found += [singles[start : start + size] for start in range(0, len(singles), size)]
    return found


def score(settings: EvaluationSettings, model: Predictor, items: Sequence[Item]) -> Iterator[Record]:
    """The score of each question, and the reply or the likelihoods of the ranked answers."""
    scored = _ranked if settings.mode == "likelihood" else _replied
    yield from scored(model, [item.content for item in items], settings.batch_size)


def statistics(settings: EvaluationSettings, records: Sequence[Record]) -> list[Statistic]:
    """See `run_statistics`."""
    return run_statistics(resolve_tasks(settings.tasks), records)


def rows(statistics: Sequence[Statistic], records: Sequence[Record]) -> list[Row]:
    """The scores with their intervals."""
    return score_rows(statistics)


def notes(settings: EvaluationSettings, items: Sequence[Item], results: Results) -> list[str]:
    """What a reader of the scores must know."""
    return run_notes(settings, resolve_tasks(settings.tasks), results)


def describe(items: Sequence[Item], records: Mapping[str, Record]) -> dict[str, Any]:
    """What a result records of each task; JSON values only."""
    tasks = {
        task.name: {
            "version": task.version,
            "metric": task.metric,
            "questions": len(own),
            "questions_sha256": questions_sha256([item.content.question for item in own]),
            **own[0].content.facts,
        }
        for task, own in _by_task(items)
    }
    return {"tasks": tasks}


def plan(items: Sequence[Item]) -> dict[str, Any]:
    """Questions and cuts by task, the longest prompt, and the tokens to read at most: each context once."""
    contexts: dict[str, int] = {}
    for item in items:
        place = item.content.question.context
        contexts[place] = max(contexts.get(place, 0), item.facts["tokens"])
    return {
        "questions": {task.name: len(own) for task, own in _by_task(items)},
        "cut": {task.name: sum(item.facts["cut"] > 0 for item in own) for task, own in _by_task(items)},
        "longest_prompt": max(item.facts["tokens"] for item in items),
        "tokens_to_run": sum(contexts.values()) + sum(item.tokens - item.facts["tokens"] for item in items),
    }


def _by_task(items: Sequence[Item]) -> list[tuple[Task, list[Item]]]:
    tasks = dict.fromkeys(item.content.task for item in items)
    return [(task, [item for item in items if item.content.task is task]) for task in tasks]


def _ranked(model: Predictor, group: Sequence[Asked], batch_size: int) -> list[Record]:
    from lengthwise.evaluation.decoding import likelihoods

    found = likelihoods(
        model, [one.prompt.ids for one in group], [one.answers for one in group], batch_size=batch_size
    )
    return [_ranking(one, scores) for one, scores in zip(group, found, strict=True)]


def _ranking(one: Asked, scores: Sequence[float]) -> Record:
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


def _replied(model: Predictor, group: Sequence[Asked], batch_size: int) -> list[Record]:
    from lengthwise.evaluation.decoding import replies

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
