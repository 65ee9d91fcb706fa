"""A family of one's own: what its questions and its scorer do wrong is refused in words, before it is lost."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lengthwise.errors import UsageError
from lengthwise.evaluation import Evaluation, tasks
from lengthwise.evaluation.task import ANY_TASK, Family, Question, Task
from lengthwise.measure import run
from lengthwise.results import Results
from lengthwise.testing import tiny_llama, tiny_tokenizer

Measured = Callable[..., Results]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Measured:
    """A run of two tasks that ask the same."""

    def of(*asked: dict[str, Any], score: Any = 1.0, mode: str = "greedy") -> Results:
        def task(name: str) -> Task:
            questions = [
                Question(
                    **{"prompt": "the king", "golds": ["a"], "candidates": ["a", "b"], "new_tokens": 2}
                    | {"key": f"{name}/{index}"}
                    | each
                )
                for index, each in enumerate(asked)
            ]
            return Task(
                name=name, what=name, version=1, metric="accuracy", questions=lambda *_: questions,
                score=lambda *_: score, takes=ANY_TASK, ranks=True,
            )  # fmt: skip

        own = Family("own", (task("own_one"), task("own_two")), mean="accuracy")
        monkeypatch.setattr(tasks, "FAMILIES", (own,))
        for one in own.tasks:
            monkeypatch.setitem(tasks.TASKS, one.name, one)
        return run(Evaluation(tasks=("own",), mode=mode), (tiny_llama(), tiny_tokenizer()))

    return of


@pytest.mark.parametrize(
    ("wrong", "mode", "named"),
    [
        ({"golds": ["z"]}, "likelihood", "own_one/1 lack"),
        ({"golds": []}, "likelihood", "own_one/1 lack"),
        ({"candidates": []}, "likelihood", "own_one/1 lack"),
        ({"new_tokens": 0}, "greedy", "new_tokens of own_one/1 is 0"),
        ({"new_tokens": -1}, "greedy", "new_tokens of own_one/1 is -1"),
        ({"key": "own_one/0"}, "greedy", "3 items are named own_one/0"),
    ],
)
def test_a_question_that_cannot_be_asked_is_named(
    measured: Measured, wrong: dict[str, Any], mode: str, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        measured({}, wrong, mode=mode)


@pytest.mark.parametrize("score", [float("nan"), None, "1", 2, -0.5, [1.0]])
def test_a_score_that_is_no_share_is_refused(measured: Measured, score: Any) -> None:
    with pytest.raises(UsageError, match="own_one/0"):
        measured({}, score=score)


@pytest.mark.parametrize("score", [0, 1, True, np.float32(0.5)])
def test_any_number_that_is_a_share_is_a_score(measured: Measured, score: Any) -> None:
    records = measured({}, score=score).records
    assert {type(record["score"]) for record in records.values()} == {float}
    assert {record["score"] for record in records.values()} == {float(score)}


@pytest.mark.parametrize("fact", [{"length": 64}, {"depth": 50.0}, {"bucket": "short"}])
def test_places_that_only_some_questions_have_lose_no_answer(
    measured: Measured, fact: dict[str, Any]
) -> None:
    rows = measured({}, fact).rows
    places = [(row.task, row.length, row.depth, row.bucket) for row in rows]
    assert len(set(places)) == len(places)
    [(name, value)] = fact.items()
    assert {row.task for row in rows if getattr(row, name) == value} >= {"own_one", "own_two"}


def test_the_mean_of_a_family_without_depths_stands_once(measured: Measured) -> None:
    assert [row.task for row in measured({}, {}).rows] == ["own_one", "own_two", "own"]
