"""ROUGE-L F of two texts, equal to the `rouge` package 1.0.1, which LongBench scores summaries with.

A text is cut at its full stops into sentences, a sentence at its spaces into words. For each sentence of the
reference the longest common subsequences with all sentences of the reply are united. All sizes are sizes of
sets of words: a word counts once. With U the union over the reference's sentences,

    R = |U| / |words of the reference|,  P = |U| / |words of the reply|,  F = 2 R P / (R + P + 1e-8).

Two empty sentences (as after ". ") share the empty word, as in the package. Among several longest
subsequences the one that the package finds is taken. It recurses one level for each word and gives 0 where
Python's stack ends, at about a thousand words in a pair of sentences; here the number is computed.
"""

from __future__ import annotations

from collections.abc import Sequence


def rouge_l(reply: str, gold: str) -> float:
    """ROUGE-L F in 0 .. 1; 0 where either text has no sentence."""
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
