"""Coupled tasks against worked examples, and their sources: what they name decides the response."""

import random

import pytest

from lengthwise_studies.sparsity.coupled_tasks import ADDITION, COUPLED_TASKS, PARITY, VARIABLE_ASSIGNMENT


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


@pytest.mark.parametrize("task", COUPLED_TASKS.values(), ids=lambda task: task.name)
@pytest.mark.parametrize("length", [1, 4])
def test_what_a_task_says_of_itself(task, length):
    seen = {}
    for sample in _draws(task, length, 600):
        text = sample.prompt + sample.response
        assert len(text) == len(sample.ids)
        assert len(sample.sources) == len(sample.response)
        assert set(text) <= set(task.vocabulary)
        for step, sources in enumerate(sample.sources):
            at = len(sample.prompt) + step
            assert all(source < at for source in sources)
            # Every id of the response can be pointed at.
            assert sample.ids[at] in {one + more for one in sample.ids[:at] for more in (0, 1)}
            key = (step, *(text[source] for source in sources))
            assert seen.setdefault(key, text[at]) == text[at]


def _sparsity_and_locality(sample):
    """The most tokens that decide one of the response, and its largest span with them, in tokens and in ids."""
    first = len(sample.prompt) - 1
    seen = [(*sources, first + step) for step, sources in enumerate(sample.sources)]
    ids = [[sample.ids[index] for index in places] for places in seen]
    spans = (max(max(places) - min(places) + 1 for places in of) for of in (seen, ids))
    return max(map(len, sample.sources)), *spans


@pytest.mark.parametrize(
    ("task", "short", "long"),
    [
        (PARITY, (2, 6, 2), (2, 18, 2)),
        (ADDITION, (5, 15, 2), (5, 51, 2)),
        (VARIABLE_ASSIGNMENT, (3, 13, 1), (3, 42, 1)),
    ],
)
def test_tokens_that_decide_lie_ever_further_back_and_coupled_ids_bring_them_together(task, short, long):
    found = [_sparsity_and_locality(task.draw(length, random.Random(0))) for length in (4, 16)]
    assert found == [short, long]
