"""Theorem 1: the printed bound is broken by a small model; the corrected ones hold."""

import pytest
import torch

import lengthwise_studies.theorem1_check as theorem1


@pytest.mark.parametrize("length", [20, 50])
def test_a_model_that_breaks_the_printed_bound(length):
    tokens, a, b, y = theorem1.counterexample(length)
    # Its assumptions hold: unit tokens, probability vectors, a label that truncation does not change.
    assert torch.allclose(tokens.norm(dim=1), torch.ones(length, dtype=torch.float64))
    for n in range(1, length + 1):
        assert theorem1.read(tokens[-n:], a, b).sum().item() == pytest.approx(1)
    # The whole view is the mean of the near and the far one, and no view of training length errs.
    far = theorem1.read(tokens[:-2], a, b, query=tokens[-1])
    assert torch.allclose(theorem1.read(tokens, a, b), (2 * y + (length - 2) * far) / length)
    assert torch.equal(theorem1.read(tokens[-2:], a, b), y)
    assert torch.equal(theorem1.read(tokens[-1:], a, b), y)
    assert not (a @ b).any(), "C0 as printed"
    found = theorem1.counterexample_numbers(length)
    assert found["squared_error"] == pytest.approx(2 * ((length - 2) / length) ** 2)
    # The largest bound over the views is below the error: also on average, whichever way they are drawn.
    assert found["printed_bound"] < found["squared_error"] <= found["corrected_bound"]


def test_the_corrected_bounds_hold_for_random_models():
    ratios = theorem1.largest_ratios(theorem1.SCALES["default"])
    assert all(0 < ratio <= 1 + 1e-12 for ratio in ratios.values())


def test_the_ratio_of_its_constants_grows_with_the_test_length_as_claimed():
    """C1 / C2 is K^2 / (K^2 + 1) as printed and 12 K^2 / (12 K^2 + 2) corrected; K grows to 1."""
    for bound, limit in ((theorem1.PRINTED, 1 / 2), (theorem1.CORRECTED, 6 / 7)):
        ratios = [theorem1.constants_ratio(bound, 2, length) for length in (3, 20, 50, 500, 10**6)]
        assert ratios == sorted(set(ratios))
        assert ratios[-1] == pytest.approx(limit, rel=1e-4)


def test_the_corrected_bound_says_nothing_beyond_the_training_length():
    """Two probability vectors are at most 2 apart in square, two unit vectors 4; unit outputs need C0 >= 1."""
    for length in range(11, 200):
        assert theorem1.factors(theorem1.CORRECTED, 10, length)[-1] > 3
        assert theorem1.factors(theorem1.CORRECTED, 10, length, c0=1.0)[-1] > 4
