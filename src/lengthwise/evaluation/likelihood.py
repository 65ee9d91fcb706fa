"""Likelihoods of given answers after prompts: what prompts begin with is read once, and each answer is a branch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lengthwise.errors import require, require_integer
from lengthwise.measure.measurement import in_groups
from lengthwise.subjects import Branch, Predictor, Reading, naming_bad_logits
from lengthwise.subjects.reading import Tokens
from lengthwise.subjects.writing import WORTH_SHARING, alike


def likelihoods(
    model: Predictor,
    prompts: Sequence[Tokens],
    answers: Sequence[Sequence[Tokens]],
    *,
    batch_size: int = 1,
) -> list[list[float]]:
    """log p(answer | prompt) in nats, summed over the answer's tokens, for every answer of every prompt.

    What all prompts begin with is read once; without a common beginning `batch_size` texts are read at a time. No
    answer is empty. UsageError for more tokens than the model has positions, NonFiniteLogits for NaN or infinite
    logits.
    """
    require(
        len(prompts) == len(answers),
        f"{len(prompts)} prompts have {len(answers)} lists of answers",
        "one each",
    )
    require_integer("batch_size", batch_size, low=1, unit="texts")
    if not any(answers):
        return [[] for _ in answers]
    pairs = [(prompt, answer) for prompt, own in zip(prompts, answers, strict=True) for answer in own]
    rows = [(*prompt, *answer[:-1]) for prompt, answer in pairs]
    labels = [np.array(answer) for _, answer in pairs]
    shared = min(alike(min(rows), max(rows)), *(len(prompt) - 1 for prompt in prompts))
    with naming_bad_logits(model, "what follows a prompt"):
        if (len(rows) - 1) * shared < WORTH_SHARING:
            whole = [Reading(tokens=np.array(row), labels=own) for row, own in zip(rows, labels, strict=True)]
            losses = [read.losses for group in in_groups(whole, batch_size) for read in model.read(group)]
        else:
            branches = [
                Branch(place=shared, tokens=np.array(row[shared:]), labels=own)
                for row, own in zip(rows, labels, strict=True)
            ]
            [read] = model.read([Reading(tokens=np.array(rows[0][:shared]), branches=branches)])
            losses = read.branches
    found = iter(-float(each.sum()) for each in losses)
    return [[next(found) for _ in own] for own in answers]
