"""Scorers of replies, each in 0 .. 1, and of ranked answers.

BABILong's equals the present `compare_answers` of booydar/babilong. Its peculiarities are kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from lengthwise.evaluation.task import Question


def contained_share(question: Question, reply: str) -> float:
    """The share of the right answers that the reply contains, whatever their case (RULER's score for needles)."""
    lowered = reply.lower()
    return sum(gold.lower() in lowered for gold in question.golds) / len(question.golds)


def only_label(question: Question, reply: str) -> float:
    """1 if the right answer is the only one of the candidates that the reply names, else 0: BABILong's score.

    A reply is read up to the first full stop or tag. Candidates are looked for as substrings, whatever their
    case; those that the question names are never answers.

    Upstream also cuts at the word "Question". That never happens, because the text is in lower case by then. So
    a reply that continues with a made-up question and names other places there counts as wrong. This is kept.
    """
    read = re.split(r"\.|<context>|<example>", reply.lower())[0]
    asked = question.about.lower()
    named = {label for label in map(str.lower, question.candidates) if label in read and label not in asked}
    return float(named == {question.golds[0].lower()})


def ranking(candidates: Sequence[str], gold: str, scores: Sequence[float]) -> dict[str, Any]:
    """The record of ranked answers, from their log-likelihoods."""
    right, top = scores[candidates.index(gold)], max(scores)
    total = sum(math.exp(score - top) for score in scores)
    return {
        "score": float(right == top and scores.count(top) == 1),
        "probability": math.exp(right - top) / total,
        # Of the log-likelihoods, so that it stays finite where the probability underflows.
        "gold_loss": top - right + math.log(total),
        "chance": 1 / len(scores),
        "likelihoods": dict(zip(candidates, scores, strict=True)),
    }
