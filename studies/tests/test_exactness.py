"""Exact answers of any task, and what one and the same answer gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lengthwise.errors import UsageError
from lengthwise_studies.section3.cells import SCALES
from lengthwise_studies.section3.exactness import constant_answer_shares, exactness, spacing
from lengthwise_studies.synthetic.tasks import BIT_TASKS, SYMBOL_TASKS

SMALL = replace(SCALES["smoke"], steps=120, batch=16, test_length=6, samples=32, width=16)


def test_what_is_learned_is_exactly_right():
    learned = exactness("mean", "none", replace(SMALL, steps=400), train_length=2)
    assert min(seed[0] for seed in learned.exact) == 1, "0 and 1 at length 1"
    assert learned.symbols is None
    untrained = exactness("mean", "none", replace(SMALL, steps=1), train_length=2)
    assert max(seed[0] for seed in untrained.exact) < 1
    assert max(value or 0 for value in learned.train_loss) < min(v or 0 for v in untrained.train_loss)


def test_symbols_are_counted_without_the_end_marker():
    learned = exactness("even-pairs", "none", SMALL, train_length=1)
    assert [seed[0] for seed in learned.exact] == [1, 1], "one symbol always has even pairs"
    assert learned.symbols is not None
    assert [seed[0] for seed in learned.symbols] == [1, 1]
    # Beyond, every answer given has one symbol, so both shares are the same number.
    assert [seed[2] for seed in learned.symbols] == pytest.approx([seed[2] for seed in learned.exact])
    assert learned.lengths == [1, 2, 3, 4, 5, 6]


def test_chance_is_what_one_answer_gets():
    shares = constant_answer_shares(SYMBOL_TASKS["parity"], train_length=8, lengths=[12, 20])
    assert shares == pytest.approx([0.5, 0.5], abs=0.08)
    assert constant_answer_shares(SYMBOL_TASKS["copy"], train_length=8, lengths=[12]) == [0]
    # The best constant of the mean is 1/2: right where half of the bits are ones.
    chance = exactness("mean", "none", replace(SMALL, steps=1), train_length=4).chance
    assert chance[:4] == pytest.approx([0, 0.5, 0, 6 / 16])
    # Of lengths 1 .. 3 it is 2.
    assert exactness("length", "none", replace(SMALL, steps=1), train_length=3).chance == [0, 1, 0, 0, 0, 0]


def test_spacing_of_outcomes():
    assert spacing(BIT_TASKS["mean"], 20) == pytest.approx(1 / 20)
    assert spacing(BIT_TASKS["sum"], 20) == 1
    assert spacing(BIT_TASKS["length"], 20) == 1


def test_what_cannot_be_tested_is_refused_before_training(monkeypatch):
    import lengthwise_studies.section3.exactness as module

    def never(*args, **options):
        raise AssertionError("trained")

    monkeypatch.setattr(module, "train", never)
    long = replace(SMALL, test_length=70)
    # ^, 70 letters, =, 70 letters, $.
    with pytest.raises(UsageError, match=r"143 tokens .* learned encoding has 128 positions"):
        exactness("copy", "learned", long, train_length=2)
    with pytest.raises(UsageError, match="randomised positions for the task copy"):
        exactness("copy", "randomised", SMALL, train_length=2)
    with pytest.raises(AssertionError, match="trained"):
        exactness("mean", "randomised", SMALL, train_length=2)


def test_an_unknown_task_is_refused():
    with pytest.raises(UsageError, match="did you mean 'parity'"):
        exactness("parit", "none", SMALL, train_length=2)
