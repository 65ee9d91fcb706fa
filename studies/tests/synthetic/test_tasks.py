"""Tasks, functions of their outcomes, and predictors that need no model."""

import doctest
from dataclasses import replace

import pytest
import torch

import lengthwise_studies.synthetic.reparameterization as reparameterization
import lengthwise_studies.synthetic.tasks as tasks
from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.reparameterization import (
    FUNCTIONS,
    IDENTITY,
    constant_error,
    length_alone_error,
)
from lengthwise_studies.synthetic.tasks import BIT_TASKS, LENGTH, MEAN, SUM, UNIFORM_COUNT_MEAN


def test_the_worked_examples_are_right():
    for module in (tasks, reparameterization):
        done = doctest.testmod(module)
        assert (done.failed, done.attempted > 0) == (0, True)


@pytest.mark.parametrize("task", BIT_TASKS.values(), ids=lambda task: task.name)
@pytest.mark.parametrize("length", [1, 3, 6])
def test_the_law_of_the_outcome_is_that_of_the_samples(task, length):
    lengths = torch.full((20_000,), length)
    bits = task.draw(lengths, length + 2, torch.Generator().manual_seed(0))
    assert not bits[:, length:].any()
    outcomes, law = task.outcome(bits, lengths), task.outcomes(length)
    assert law.probabilities.sum().item() == pytest.approx(1)
    for value, probability in zip(law.values, law.probabilities, strict=True):
        share = (outcomes - value).abs().lt(1e-6).float().mean().item()
        assert share == pytest.approx(probability.item(), abs=0.015)


@pytest.mark.parametrize("task", [MEAN, UNIFORM_COUNT_MEAN], ids=lambda task: task.name)
def test_bits_are_placed_evenly(task):
    bits = task.draw(torch.tensor([4, 7]).repeat(10_000), 7, torch.Generator().manual_seed(0)).float()
    assert (bits[::2, :4].mean(0) - 0.5).abs().max() < 0.02
    assert (bits[1::2].mean(0) - 0.5).abs().max() < 0.02


@pytest.mark.parametrize(
    ("task", "errors"), [(MEAN, (0.025, 0.0125, 0.005)), (UNIFORM_COUNT_MEAN, (0.1, 22 / 240, 52 / 600))]
)
def test_one_half_for_the_mean(task, errors):
    """1 / (4 l) and, of uniform counts, (l + 2) / (12 l). Appendix F has N(0.5, 0.005) for the first at 50: right."""
    for length, error in zip((10, 20, 50), errors, strict=True):
        assert constant_error(task, IDENTITY, train_length=10, length=length) == pytest.approx((error, error))
        assert length_alone_error(task, length=length) == pytest.approx(error)


def test_half_the_length_for_the_sum():
    """l / 4, the variance of a binomial. A compressing f fits a lower constant, which errs by more."""
    assert length_alone_error(SUM, length=20) == pytest.approx(5)
    assert length_alone_error(LENGTH, length=50) == 0
    compressed, plain = (
        constant_error(SUM, function, train_length=10, length=20)[0]
        for function in (replace(FUNCTIONS["log"], shift=1), IDENTITY)
    )
    assert plain < compressed < 20**2


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shift", [0, 1])
def test_the_inverse_undoes_the_function(name, shift):
    function = replace(FUNCTIONS[name], shift=shift)
    y = torch.arange(1, 51, dtype=torch.float64)
    back, clamped = function.invert(function.apply(y), lowest=1, highest=500)
    assert torch.allclose(back, y)
    assert not clamped.any()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_outputs_without_an_inverse_are_clamped_and_counted(name):
    z = torch.tensor([-1.0, 0.0, 0.01, 0.5, 1.0, 3.0])
    back, clamped = FUNCTIONS[name].invert(z, lowest=1, highest=500)
    if name == "identity":
        assert torch.equal(back, z)
    else:
        assert ((back > 0.999) & (back < 500.1)).all()
    assert clamped.any() == (name != "identity")


@pytest.mark.parametrize("name", ["log", "1/sqrt", "1/x", "1/log(x+1)"])
@pytest.mark.parametrize("task", [SUM, MEAN], ids=["sum", "mean"])
def test_a_function_undefined_at_zero_is_refused_for_tasks_that_can_be_zero(name, task):
    with pytest.raises(UsageError, match=r"undefined at 0.*\n.*\n.*shift=1"):
        reparameterization.reparameterization(name, task)
    assert reparameterization.reparameterization(name, task, shift=1).apply(torch.tensor(0.0)).isfinite()
    assert reparameterization.reparameterization(name, LENGTH).apply(torch.tensor(1.0)).isfinite()
