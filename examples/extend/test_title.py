from __future__ import annotations

import re

from lengthwise.evaluation import TASKS, Evaluation
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus


def test_the_title_is_told_once_and_scored():
    tokenizer = tiny_tokenizer()
    corpus = Corpus.of("nonsense", {"0": tiny_text(900)}, split="all", split_rule="all documents")
    task = TASKS["title_first_sentence"]
    settings = Evaluation(tasks=(task.name,), lengths=(500,), samples=8)
    questions = task.questions(settings, tokenizer, corpus)
    assert len({question.golds[0] for question in questions}) > 1
    for question in questions:
        assert re.findall(r"title of this text is (\w+)\.", question.prompt) == question.golds
        assert question.prompt.startswith("The title")
        assert 450 <= len(tokenizer(question.prompt).input_ids) <= 500
        assert [task.score(question, f" {title}.") for title in question.candidates].count(1) == 1
