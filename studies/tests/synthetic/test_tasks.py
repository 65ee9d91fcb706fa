from __future__ import annotations

import doctest
import importlib
import itertools
import pkgutil
import random

import pytest
import torch

import lengthwise_studies.synthetic.tasks as tasks
from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.tasks import BIT_TASKS, SYMBOL_TASKS, bit_task
from lengthwise_studies.synthetic.tasks.bits import fair_bits, uniform_count_bits
from lengthwise_studies.synthetic.tasks.symbols import IGNORED, symbol_batch

FILES = [module.name for module in pkgutil.iter_modules(tasks.__path__)]
SHARED = {"symbols"}

DELETANG = {
    "regular": {"even-pairs", "modular-arithmetic", "parity", "cycle-navigation"},
    "context-free": {"stack-manipulation", "reverse", "modular-arithmetic-brackets", "solve-equation"},
    "context-sensitive": {
        "duplicate",
        "missing-duplicate",
        "odds-first",
        "binary-addition",
        "binary-multiplication",
        "compute-sqrt",
        "bucket-sort",
    },
}
"""Their fifteen tasks (2022, Table 1)."""


@pytest.mark.parametrize("name", FILES)
def test_the_worked_examples_are_right(name):
    module = importlib.import_module(f"lengthwise_studies.synthetic.tasks.{name}")
    done = doctest.testmod(module)
    assert done.failed == 0
    if name not in SHARED:
        assert done.attempted >= 1, "every task shows how it works"


@pytest.mark.parametrize("task", BIT_TASKS.values(), ids=lambda task: task.name)
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_law_of_the_outcome_is_that_of_the_samples(task, length):
    lengths = torch.full((20_000,), length)
    bits = task.draw(lengths, length + 2, torch.Generator().manual_seed(0))
    assert not bits[:, length:].any()
    outcomes = task.outcome(bits, lengths)
    law = task.outcomes(length)
    assert law.probabilities.sum().item() == pytest.approx(1)
    for value, probability in zip(law.values, law.probabilities, strict=True):
        share = (outcomes - value).abs().lt(1e-6).float().mean().item()
        assert share == pytest.approx(probability.item(), abs=0.015)


def test_fair_bits_are_fair_at_every_place():
    bits = fair_bits(torch.full((20_000,), 5), 5, torch.Generator().manual_seed(0))
    assert (bits.float().mean(0) - 0.5).abs().max() < 0.015


def test_uniform_counts_are_placed_evenly():
    lengths = torch.tensor([4, 7]).repeat(10_000)
    bits = uniform_count_bits(lengths, 7, torch.Generator().manual_seed(0))
    assert (bits[::2, :4].float().mean(0) - 0.5).abs().max() < 0.02
    assert (bits[1::2].float().mean(0) - 0.5).abs().max() < 0.02


def test_an_unknown_task_is_refused():
    with pytest.raises(UsageError, match="did you mean 'length'"):
        bit_task("lenght")


@pytest.mark.parametrize("task", SYMBOL_TASKS.values(), ids=lambda task: task.name)
def test_questions_and_answers_are_made_of_the_alphabet(task):
    rng = random.Random(0)
    assert len(set(task.vocabulary)) == len(task.vocabulary)
    for length in (1, 2, 7, 20):
        question = task.draw(length, rng)
        assert set(question + task.answer(question)) <= set(task.alphabet)
    sizes = [len(task.answer(task.draw(length, rng))) for length in (4, 20) for _ in range(30)]
    assert (len(set(sizes)) > 1) == (task.support == "growing")
    assert 0 < task.chance <= 0.5


def test_all_of_deletangs_tasks_are_here_in_their_classes():
    found = {
        name: {task.name for task in SYMBOL_TASKS.values() if task.hierarchy == name} for name in DELETANG
    }
    assert found == DELETANG


@pytest.mark.parametrize("length", [1, 2, 5, 9, 20])
def test_bracketed_expressions_against_python(length):
    task, rng = SYMBOL_TASKS["modular-arithmetic-brackets"], random.Random(length)
    for _ in range(30):
        question = task.draw(length, rng)
        assert sum(symbol.isdigit() for symbol in question) == length
        assert int(task.answer(question)) == eval(question) % 5


@pytest.mark.parametrize("length", [1, 2, 5, 9, 20])
def test_equations_have_the_one_solution_that_python_finds(length):
    task, rng = SYMBOL_TASKS["solve-equation"], random.Random(length)
    answers = set()
    for _ in range(40):
        question = task.draw(length, rng)
        left, value = question.split(":")
        assert left.count("x") == 1
        assert sum(symbol.isdigit() for symbol in left) == length - 1
        right = [x for x in range(5) if eval(left, {"x": x}) % 5 == int(value)]
        assert right == [int(task.answer(question))]
        answers.add(task.answer(question))
    assert answers == set("01234")


@pytest.mark.parametrize("length", [1, 4, 7, 12])
def test_binary_numbers_against_python(length):
    rng = random.Random(length)

    def value(bits: str) -> int:
        return sum(int(bit) << place for place, bit in enumerate(bits))

    for _ in range(30):
        added = SYMBOL_TASKS["binary-addition"].draw(length, rng)
        answer = SYMBOL_TASKS["binary-addition"].answer(added)
        assert (value(answer), len(answer)) == (sum(map(value, added.split("+"))), length + 1)
        first, second = (multiplied := SYMBOL_TASKS["binary-multiplication"].draw(length, rng)).split("*")
        answer = SYMBOL_TASKS["binary-multiplication"].answer(multiplied)
        assert (value(answer), len(answer)) == (value(first) * value(second), 2 * length)
        root = value(
            SYMBOL_TASKS["compute-sqrt"].answer(of := SYMBOL_TASKS["compute-sqrt"].draw(length, rng))
        )
        assert root**2 <= value(of) < (root + 1) ** 2


def test_symbol_samples_ask_for_the_answer_and_its_end():
    task = SYMBOL_TASKS["reverse"]
    batch = symbol_batch(task, [3, 1], random.Random(3))
    ids = task.vocabulary
    text = ["".join(ids[i] for i in row) for row in batch.tokens.tolist()]
    question = text[0][1:4]
    assert text[0] == f"^{question}={question[::-1]}$"
    assert text[1][-5:] == "$" * 5
    asked = ["".join(ids[i] for i in row if i != IGNORED) for row in batch.labels.tolist()]
    assert asked == [question[::-1] + "$", text[1][1] + "$"]
    # A label has the place of the token before it.
    assert batch.labels[0].tolist()[:4] == [IGNORED] * 4
    assert batch.labels[0, 4] == batch.tokens[0, 5]
    with pytest.raises(UsageError, match="each 1 or greater"):
        symbol_batch(task, [0], random.Random(0))


def test_modular_arithmetic_against_python():
    task = SYMBOL_TASKS["modular-arithmetic"]
    rng = random.Random(0)
    for length in range(1, 9):
        question = task.draw(length, rng)
        assert int(task.answer(question)) == eval(question) % 5


def test_the_hinted_sum_is_the_plain_sum_with_hints():
    plain, hinted = SYMBOL_TASKS["addition"], SYMBOL_TASKS["addition-hinted"]
    question = hinted.draw(12, random.Random(0))
    bare = "".join(symbol for symbol in question if symbol in "0123456789+")
    answer = hinted.answer(question)
    assert answer[1::2] == plain.answer(bare)
    assert int(plain.answer(bare)[::-1]) == sum(map(int, bare.split("+")))
    hints = [question[index] for index in range(0, 24, 2)]
    assert hints == list(reversed(answer[:-2:2]))
    with pytest.raises(UsageError, match="at most 51"):
        hinted.draw(52, random.Random(0))


def test_even_pairs_is_equal_ends():
    task = SYMBOL_TASKS["even-pairs"]
    for bits in itertools.product("01", repeat=5):
        assert task.answer("".join(bits)) == str(int(bits[0] == bits[-1]))
