"""What an evaluation would do, before any weight is loaded: `--dry-run`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.evaluation.job import EvalJob
from lengthwise.evaluation.preparing import Asked, corpus_of, prepare
from lengthwise.measure.planning import cost_of
from lengthwise.models import EMBEDDED
from lengthwise.models.embedded import made_folder
from lengthwise.models.quiet import quiet_transformers
from lengthwise.models.resolve import resolve

if TYPE_CHECKING:
    from collections.abc import Sequence


def plan_eval(job: EvalJob) -> dict[str, Any]:
    """Settings, questions, tokens, cuts, memory and time of `job`. Plain values.

    Makes or reads all questions and turns them into tokens; loads the tokenizer but no weights. An embedded model
    that has not been made yet is made.

    Raises:
        UsageError, MissingError: the model, the data or a setting cannot work.
    """
    from transformers import AutoTokenizer

    corpus = None if job.backend == "lm-eval" else corpus_of(job)
    settings = {"kind": "eval", **job.settings()}
    if job.model in EMBEDDED and made_folder(job.model) is None:
        return {
            "settings": settings,
            "questions": "not known before the model has been made (at its first use)",
        }
    if job.model.lower().endswith(".gguf"):
        return {
            "settings": settings,
            "questions": "not known before the file has been converted (at its first use)",
        }
    resolved = resolve(job.model)
    with quiet_transformers():
        tokenizer = AutoTokenizer.from_pretrained(
            resolved.location,
            revision=resolved.revision or "main",
            local_files_only=resolved.local_files_only,
        )
    if job.backend == "lm-eval":
        from lengthwise.evaluation.harness.running import plan_harness

        plan = plan_harness(job, tokenizer)
        at_once = job.batch_size * plan["longest_prompt"]
        return {
            "settings": settings,
            **plan,
            **cost_of(job, resolved, tokens=plan["tokens_to_run"], at_once=at_once),
        }
    prepared = prepare(job, tokenizer, corpus)
    sizes = [len(one.prompt.ids) for one in prepared.asked]
    tokens = _tokens(prepared.asked)
    return {
        "settings": settings,
        "questions": {task.name: len(prepared.of(task)) for task in prepared.tasks},
        "cut": {task.name: sum(one.prompt.cut > 0 for one in prepared.of(task)) for task in prepared.tasks},
        "longest_prompt": max(sizes),
        "tokens_to_run": tokens,
        **cost_of(job, resolved, tokens=tokens, at_once=job.batch_size * max(sizes)),
    }


def _tokens(asked: Sequence[Asked]) -> int:
    """Tokens that the model reads at most: each context once, and what is written or ranked after it."""
    contexts: dict[str, int] = {}
    after = 0
    for one in asked:
        contexts[one.question.context] = max(contexts.get(one.question.context, 0), len(one.prompt.ids))
        after += sum(map(len, one.answers)) if one.answers else one.question.new_tokens
    return sum(contexts.values()) + after
