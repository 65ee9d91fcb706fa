from __future__ import annotations

import doctest

import pytest
import torch

import lengthwise_studies.synthetic.tasks as tasks
from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.tasks import BIT_TASKS, bit_task, fair_bits, uniform_count_bits


def test_the_worked_examples_are_right():
    done = doctest.testmod(tasks)
    assert (done.failed, done.attempted > 0) == (0, True)


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
