from __future__ import annotations

import doctest

import pytest
import torch

import lengthwise_studies.synthetic.reparameterization as module
from lengthwise.errors import UsageError
from lengthwise_studies.synthetic.reparameterization import FUNCTIONS, Reparameterization, reparameterization
from lengthwise_studies.synthetic.tasks import LENGTH, MEAN, SUM


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("shift", [0, 1])
def test_the_inverse_undoes_the_function(name, shift):
    function = Reparameterization(FUNCTIONS[name], shift)
    y = torch.arange(1, 51, dtype=torch.float64)
    back, clamped = function.invert(function.apply(y), lowest=1, highest=500)
    assert torch.allclose(back, y)
    assert not clamped.any()


def test_outputs_without_an_inverse_are_clamped_and_counted():
    assert doctest.testmod(module).failed == 0
    z = torch.tensor([-1.0, 0.0, 0.01, 0.5, 1.0, 3.0])
    for name in ("1/sqrt", "1/x", "1/log(x+1)", "log", "sqrt"):
        back, clamped = Reparameterization(FUNCTIONS[name]).invert(z, lowest=1, highest=500)
        assert torch.isfinite(back).all()
        assert back.min() > 0.999
        assert back.max() < 500.1
        assert clamped.any()
    back, clamped = Reparameterization(FUNCTIONS["identity"]).invert(z, lowest=1, highest=500)
    assert torch.equal(back, z)
    assert not clamped.any()


@pytest.mark.parametrize("name", ["log", "1/sqrt", "1/x", "1/log(x+1)"])
@pytest.mark.parametrize("task", [SUM, MEAN], ids=["sum", "mean"])
def test_a_function_undefined_at_zero_is_refused_for_tasks_that_can_be_zero(name, task):
    with pytest.raises(UsageError, match=r"undefined at 0.*\n.*\n.*shift=1"):
        reparameterization(name, task)
    assert reparameterization(name, task, shift=1).name == f"{name} of y + 1"
    assert reparameterization(name, LENGTH).apply(torch.tensor(1.0)).isfinite()


def test_the_root_is_defined_at_zero():
    assert reparameterization("sqrt", SUM).apply(torch.tensor(0.0)) == 0


def test_an_unknown_function_is_refused():
    with pytest.raises(UsageError, match="did you mean '1/sqrt'"):
        reparameterization("1/sqr", LENGTH)
