"""Scorers of replies, each in 0 .. 1, equal to those of LongBench and of BABILong.

LongBench's are equal to the functions of THUDM/LongBench as lm-eval publishes them (tests compare the two); the
score of a reply is the greatest over all gold answers. BABILong's equals the present `compare_answers` of
booydar/babilong. Peculiarities that change scores are kept and named.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from lengthwise.evaluation.task import Question

_PUNCTUATION = str.maketrans("", "", string.punctuation)


def f1(reply: str, gold: str) -> float:
    """F1 = 2PR / (P + R) of the words as multisets: in lower case, without ASCII punctuation, a, an and the."""
    found, wanted = (
        re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION)).split() for text in (reply, gold)
    )
    same = sum((Counter(found) & Counter(wanted)).values())
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def class_match(reply: str, gold: str, classes: Sequence[str]) -> float:
    """1/k if the gold class is among the k class names that the reply contains, else 0.

    Class names inside the gold's name are dropped first. Upstream drops them from the list while iterating
    over it, so it skips the name after a dropped one, which stays. That is kept because it lowers scores.
    """
    found = [name for name in classes if name in reply]
    at = 0
    while at < len(found):
        if found[at] in gold and found[at] != gold:
            # By value, as upstream: of two equal names the first goes.
            found.remove(found[at])
        at += 1
    return 1.0 / len(found) if gold in found else 0.0


def number_share(reply: str, gold: str) -> float:
    """The share of the numbers in the reply that are the gold number; 0 without a number."""
    numbers = re.findall(r"\d+", reply)
    return numbers.count(gold) / len(numbers) if numbers else 0.0


def paragraph_share(reply: str, gold: str) -> float:
    """`number_share` of the number in a gold answer like "Paragraph 12"."""
    found = re.search(r"Paragraph (\d+)", gold)
    return number_share(reply, found[1]) if found else 0.0


def code_similarity(reply: str, gold: str) -> float:
    """Similarity of the gold line and the reply's first line without a backtick, `#` or `//`.

    Newlines at the reply's start are dropped; a blank line after them counts as a line. The similarity is
    fuzzywuzzy's: difflib's ratio, in whole per cent, 0 if one is empty and the other is not. (With the package
    python-Levenshtein installed fuzzywuzzy takes another ratio; LongBench does not ask for it.)
    """
    lines = reply.lstrip("\n").split("\n")
    line = next((each for each in lines if not any(mark in each for mark in ("`", "#", "//"))), "")
    if not line or not gold:
        return float(line == gold)
    return round(100 * SequenceMatcher(None, line, gold).ratio()) / 100


def rouge_l(reply: str, gold: str) -> float:
    """ROUGE-L F, equal to the `rouge` package 1.0.1, which LongBench scores summaries with; 0 without a sentence.

    A text is split at its full stops into sentences, a sentence at its spaces into words. For each sentence of
    the reference the longest common subsequences with all sentences of the reply are united. All sizes are sizes
    of sets of words: a word counts once. With U the union over the reference's sentences,

        R = |U| / |words of the reference|,  P = |U| / |words of the reply|,  F = 2 R P / (R + P + 1e-8).

    Two empty sentences (as after ". ") share the empty word, as in the package. Among several longest
    subsequences it takes the one that the package finds. The package recurses one level for each word and gives
    0 where Python's stack ends, at about a thousand words in a pair of sentences; here the number is computed.
    """
    reply_sentences, gold_sentences = _sentences(reply), _sentences(gold)
    if not reply_sentences or not gold_sentences:
        return 0.0
    shared: set[str] = set()
    for gold_words in gold_sentences:
        for reply_words in reply_sentences:
            shared |= _common(gold_words, reply_words)
    recall = len(shared) / len({word for words in gold_sentences for word in words})
    precision = len(shared) / len({word for words in reply_sentences for word in words})
    return 2.0 * ((precision * recall) / (precision + recall + 1e-8))


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


def _sentences(text: str) -> list[list[str]]:
    return [" ".join(part.split()).split(" ") for part in text.split(".") if part]


def _common(x: Sequence[str], y: Sequence[str]) -> set[str]:
    """The words of one longest common subsequence."""
    table = [[0] * (len(y) + 1)]
    for word in x:
        above, row = table[-1], [0]
        for j, other in enumerate(y):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
        table.append(row)
    words: set[str] = set()
    i, j = len(x), len(y)
    while i and j:
        if x[i - 1] == y[j - 1]:
            words.add(x[i - 1])
            i, j = i - 1, j - 1
        elif table[i - 1][j] > table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return words
