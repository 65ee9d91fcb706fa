"""How far outputs leave the support of training: the closed rule against enumeration, and values by hand."""

from __future__ import annotations

import itertools
import random

import pytest

from lengthwise_studies.section3.exactness import answers_outside, range_outside, symbol_shift
from lengthwise_studies.synthetic.tasks import BIT_TASKS, SYMBOL_TASKS

FIXED = (
    "parity",
    "even-pairs",
    "cycle-navigation",
    "modular-arithmetic",
    "modular-arithmetic-brackets",
    "solve-equation",
    "missing-duplicate",
)
GROWING = (
    "reverse",
    "duplicate",
    "odds-first",
    "bucket-sort",
    "binary-addition",
    "binary-multiplication",
    "compute-sqrt",
    "copy",
    "sort",
    "addition",
    "addition-hinted",
)


@pytest.mark.parametrize(
    ("name", "symbols", "lengths", "at"),
    [
        ("parity", "01", (1, 4), 6),
        ("even-pairs", "01", (1, 4), 6),
        ("cycle-navigation", "+-0", (1, 4), 6),
        ("reverse", "ab", (1, 3), 5),
        ("odds-first", "ab", (1, 3), 5),
        ("duplicate", "ab", (1, 3), 5),
        ("bucket-sort", "01234", (1, 3), 4),
    ],
)
def test_an_answer_is_outside_if_longer_than_all_in_training(name, symbols, lengths, at):
    task = SYMBOL_TASKS[name]

    def answers(length):
        return [task.answer("".join(question)) for question in itertools.product(symbols, repeat=length)]

    possible = {answer for length in range(lengths[0], lengths[1] + 1) for answer in answers(length)}
    tested = answers(at)
    share = sum(answer not in possible for answer in tested) / len(tested)
    assert answers_outside(task, train_length=lengths[1], lengths=[at]) == share


def test_of_the_stack_every_answer_that_is_short_enough_is_possible():
    task, rng = SYMBOL_TASKS["stack-manipulation"], random.Random(3)
    possible = {task.answer(task.draw(length, rng)) for length in range(1, 4) for _ in range(600)}
    assert possible == {
        "".join(stack) for height in range(4) for stack in itertools.product("ab", repeat=height)
    }
    tested = [task.answer(task.draw(8, rng)) for _ in range(4000)]
    share = sum(answer not in possible for answer in tested) / len(tested)
    assert answers_outside(task, train_length=3, lengths=[8]) == pytest.approx(share, abs=0.07)


def test_the_field_of_each_task_agrees_with_what_is_measured():
    for name, task in SYMBOL_TASKS.items():
        outside = answers_outside(task, train_length=5, lengths=[7, 9])
        assert (outside > 0) == (task.support == "growing"), name
        assert outside == {**dict.fromkeys(FIXED, 0.0), **dict.fromkeys(GROWING, 1.0)}.get(name, outside), (
            name
        )


def test_ranges_of_numbers_by_hand():
    def outside(name, lengths):
        return range_outside(BIT_TASKS[name], train_length=10, lengths=lengths)

    assert outside("mean", [11, 20]) == outside("uniform-count-mean", [50]) == 0
    assert outside("length", [11, 20]) == 1
    assert outside("length", [10, 11]) == 0.5
    assert outside("sum", [11]) == pytest.approx(2**-11)
    assert outside("uniform-count-sum", [11, 20]) == pytest.approx((1 / 12 + 10 / 21) / 2)


def test_one_symbol_shifts_little_where_whole_answers_leave():
    copy = symbol_shift(SYMBOL_TASKS["copy"], train_length=10, lengths=[20])
    # The end marker's share goes from the mean of 1 / (l + 1) to 1 / 21; the letters stay even.
    training = sum(1 / (length + 1) for length in range(1, 11)) / 10
    assert copy == pytest.approx(training - 1 / 21, abs=0.03)
    assert symbol_shift(SYMBOL_TASKS["parity"], train_length=10, lengths=[20]) < 0.05
