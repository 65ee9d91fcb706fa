"""Coupled tasks against worked examples, and their sources: what they name decides the response."""

from __future__ import annotations

import random

import pytest

from lengthwise.errors import UsageError
from lengthwise_studies.sparsity.coupled_tasks import (
    ADDITION,
    COUPLED_TASKS,
    PARITY,
    VARIABLE_ASSIGNMENT,
    locality_in_ids,
    locality_in_tokens,
    sparsity,
)

TASKS = list(COUPLED_TASKS.values())


def _draws(task, length, count):
    rng = random.Random(length)
    return [task.draw(length, rng) for _ in range(count)]


def test_parity_is_the_running_parity_and_its_digits_share_ids():
    for sample in _draws(PARITY, 6, 20):
        bits = [int(symbol) for symbol in sample.prompt[1:-1]]
        assert sample.response == "".join(str(sum(bits[: n + 1]) % 2) for n in range(6)) + "$"
    assert sample.ids == (0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7)


def test_addition_adds_and_digits_of_one_significance_share_ids():
    for sample in _draws(ADDITION, 3, 20):
        first, second = sample.prompt[1:-1].split("+")
        assert int(sample.response[:-1][::-1], 4) == int(first, 4) + int(second, 4)
    assert sample.ids == (0, 3, 2, 1, 0, 3, 2, 1, 0, 1, 2, 3, 4, 5)


def test_variable_assignment_follows_the_chain_and_names_the_pairs():
    for sample in _draws(VARIABLE_ASSIGNMENT, 5, 20):
        pairs, start = sample.prompt[1:-2], sample.prompt[-1]
        follows = dict(zip(pairs[::2], pairs[1::2], strict=True))
        place = {pairs[2 * n]: n + 1 for n in range(5)}
        chain = [start]
        while chain[-1] in follows:
            chain.append(follows[chain[-1]])
        assert sample.response == "".join(chain[1:]) + "$"
        assert sample.ids[:12] == (0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 0)
        assert sample.ids[12:] == (*(place[variable] for variable in chain[:-1]), 0, 0)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
@pytest.mark.parametrize("length", [1, 4])
def test_what_a_task_says_of_itself(task, length):
    seen = {}
    for sample in _draws(task, length, 600):
        text = sample.prompt + sample.response
        assert len(text) == len(sample.ids) == task.tokens(length)
        assert len(sample.sources) == len(sample.response)
        assert max(sample.ids) + 1 == task.ids(length)
        assert set(text) <= set(task.vocabulary)
        for step, sources in enumerate(sample.sources):
            at = len(sample.prompt) + step
            assert all(source < at for source in sources)
            # Every id of the response can be pointed at.
            assert sample.ids[at] in {one + more for one in sample.ids[:at] for more in (0, 1)}
            key = (step, *(text[source] for source in sources))
            assert seen.setdefault(key, text[at]) == text[at]


def test_sparsity_and_locality_by_length():
    """Tokens that decide lie ever further back in the order of tokens; coupled ids bring them together."""
    found = {
        task.name: [
            (sparsity(one), locality_in_tokens(one), locality_in_ids(one))
            for one in (task.draw(length, random.Random(0)) for length in (4, 16))
        ]
        for task in TASKS
    }
    assert found["parity"] == [(2, 6, 2), (2, 18, 2)]
    assert found["addition"] == [(5, 15, 2), (5, 51, 2)]
    assert found["variable-assignment"] == [(3, 13, 1), (3, 42, 1)]


def test_a_chain_longer_than_the_variables_is_refused():
    with pytest.raises(UsageError):
        VARIABLE_ASSIGNMENT.draw(26, random.Random(0))
