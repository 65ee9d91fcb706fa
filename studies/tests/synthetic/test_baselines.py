from __future__ import annotations

import pytest
import torch

from lengthwise_studies.synthetic.reparameterization import (
    FUNCTIONS,
    Reparameterization,
    best_constant,
    constant_error,
    length_alone_error,
)
from lengthwise_studies.synthetic.tasks import LENGTH, MEAN, SUM, UNIFORM_COUNT_MEAN

IDENTITY = Reparameterization(FUNCTIONS["identity"])


@pytest.mark.parametrize(("length", "error"), [(10, 0.025), (20, 0.0125), (50, 0.005)])
def test_one_half_for_the_mean_of_fair_bits(length, error):
    """1 / (4 l)."""
    assert constant_error(MEAN, IDENTITY, train_length=10, length=length) == pytest.approx((error, error))
    assert length_alone_error(MEAN, length=length) == pytest.approx(error)


@pytest.mark.parametrize(("length", "error"), [(10, 0.1), (20, 22 / 240), (50, 52 / 600)])
def test_one_half_for_the_mean_of_uniform_counts(length, error):
    """(l + 2) / (12 l)."""
    measured = constant_error(UNIFORM_COUNT_MEAN, IDENTITY, train_length=10, length=length)
    assert measured == pytest.approx((error, error))


def test_the_middle_of_the_training_lengths():
    assert best_constant(LENGTH, IDENTITY, train_length=10) == 5.5
    assert constant_error(LENGTH, IDENTITY, train_length=10, length=50) == (1980.25, 1980.25)
    assert length_alone_error(LENGTH, length=50) == 0


def test_a_constant_of_a_reparameterized_length_is_mapped_back():
    original, transformed = constant_error(
        LENGTH, Reparameterization(FUNCTIONS["1/sqrt"]), train_length=10, length=50
    )
    assert original == pytest.approx(2119, rel=1e-3)
    assert transformed == pytest.approx(0.130, rel=5e-3)


def test_half_the_length_for_the_sum():
    """l / 4, the variance of a binomial."""
    assert length_alone_error(SUM, length=20) == pytest.approx(5)
    original, _ = constant_error(
        SUM, Reparameterization(FUNCTIONS["log"], shift=1), train_length=10, length=20
    )
    assert torch.isfinite(torch.tensor(original))
    assert original > constant_error(SUM, IDENTITY, train_length=10, length=20)[0]
