"""Tracking tasks, checked by a reader that knows nothing of how they were made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation
from lengthwise.evaluation.tasks import TASKS
from lengthwise.testing import tiny_text, tiny_tokenizer
from lengthwise.text import Corpus

DEPTHS = (0.0, 25.0, 50.0, 100.0)
TOLD = re.compile(r"([A-Z]\w+) (?:spent|set|had|has|was|came) [\w ]*?(?:at|from|to) the (\w+)")


@pytest.fixture(scope="module")
def questions() -> dict[str, list[Any]]:
    tokenizer = tiny_tokenizer()
    documents = {str(i): tiny_text(2000, seed=i) for i in range(2)}
    corpus = Corpus.of("nonsense", documents, split="all", split_rule="all documents")
    return {
        name: TASKS[name].questions(
            Evaluation(tasks=(name,), lengths=(1500,), depths=DEPTHS, samples=4), tokenizer, corpus
        )
        for name in ("tracking_one_move", "tracking_two_moves")
    }


@pytest.mark.parametrize(("name", "moves"), [("tracking_one_move", 1), ("tracking_two_moves", 2)])
def test_the_last_place_told_is_the_answer(questions: dict[str, list[Any]], name: str, moves: int):
    for question in questions[name]:
        context, asked = question.prompt.split("\n\nQuestion: Where is ")
        person = asked.partition(" now?")[0]
        told = TOLD.findall(context)
        own = [place for who, place in told if who == person]
        assert own[-1:] == question.golds
        assert len(set(own)) == len(own) == moves
        assert sorted(place for _, place in told) == question.candidates
        assert len(question.candidates) == len(DEPTHS) * moves
        assert question.about == person
        assert 100 * question.reached == pytest.approx(question.depth, abs=4)


@pytest.mark.parametrize("name", ["tracking_one_move", "tracking_two_moves"])
def test_one_context_serves_all_depths(questions: dict[str, list[Any]], name: str):
    first = [question for question in questions[name] if question.unit == "s000"]
    assert [question.depth for question in first] == list(DEPTHS)
    assert len({question.context for question in first}) == 1
    assert len({question.prompt.partition("\n\nQuestion:")[0] for question in first}) == 1
    assert len({question.golds[0] for question in first}) == len(DEPTHS)
    golds = {tuple(question.golds) for question in questions[name]}
    assert len(golds) > len(DEPTHS)


def test_a_reply_names_one_place(questions: dict[str, list[Any]]):
    task = TASKS["tracking_two_moves"]
    question = questions["tracking_two_moves"][1]
    [gold] = question.golds
    other = next(place for place in question.candidates if place != gold)
    assert task.score(question, f" {gold.upper()}. Then the {other}.") == 1
    assert task.score(question, f" {other}, then the {gold}.") == 0
    assert task.score(question, " garden.") == 0


def test_more_depths_than_people_are_refused():
    with pytest.raises(UsageError, match="12 depths"):
        Evaluation(tasks=("tracking",), depths=tuple(range(12)))
