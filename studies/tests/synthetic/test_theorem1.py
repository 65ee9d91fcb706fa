"""Theorem 1: the printed bound is broken by a small model; the corrected ones hold."""

from __future__ import annotations

import itertools

import pytest
import torch

from lengthwise_studies.synthetic import theorem1
from lengthwise_studies.synthetic.theorem1 import Terms

L_TRAIN = 2


def _square(x: torch.Tensor) -> float:
    return float(x.square().sum())


def _terms(tokens, a, b, y, near: int, nearer: int) -> Terms:
    v, w = theorem1.read(tokens[-near:], a, b), theorem1.read(tokens[-nearer:], a, b)
    return Terms(_square(v - w), _square(v - y), _square(w - y))


@pytest.mark.parametrize("length", [20, 50])
def test_a_model_that_breaks_the_printed_bound(length):
    tokens, a, b, y = theorem1.counterexample(length)
    # Its assumptions hold: unit tokens, probability vectors, a label that truncation does not change.
    assert torch.allclose(tokens.norm(dim=1), torch.ones(length, dtype=torch.float64))
    for n in range(1, length + 1):
        assert theorem1.read(tokens[-n:], a, b).sum().item() == pytest.approx(1)
    error = _square(theorem1.read(tokens, a, b) - y)
    assert error == pytest.approx(2 * ((length - 2) / length) ** 2)
    views = list(range(1, L_TRAIN + 1))
    bounds = []
    for near, nearer in itertools.product(views, views):
        if nearer <= near:
            terms = _terms(tokens, a, b, y, near, nearer)
            assert (terms.misalignment, terms.near, terms.nearer) == pytest.approx((0, 0, 0))
            bounds.append(theorem1.printed_bound(terms, theorem1.printed_c0(a, b), L_TRAIN, length))
            corrected = theorem1.corrected_bound(terms, theorem1.spectral_c0(a, b), L_TRAIN, length)
            assert error <= corrected
    assert theorem1.printed_c0(a, b) == 0
    # Also on average over the views, whichever way they are drawn.
    assert max(bounds) < error


@pytest.mark.parametrize("length", [8, 30])
def test_the_corrected_bounds_hold_for_random_models(length):
    generator = torch.Generator().manual_seed(0)
    longest = 6
    for _ in range(40):
        tokens = torch.randn(length, 4, generator=generator, dtype=torch.float64)
        tokens = tokens / tokens.norm(dim=1, keepdim=True)
        a, b = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64)
        y = torch.nn.functional.normalize(torch.randn(4, generator=generator, dtype=torch.float64), dim=0)
        error = _square(theorem1.read(tokens, a, b) - y)
        for near, nearer in ((3, 3), (5, 3), (6, 4)):
            terms = _terms(tokens, a, b, y, near, nearer)
            assert error <= theorem1.corrected_bound(terms, theorem1.spectral_c0(a, b), longest, length)
            # The far view is asked by the same last token.
            far = tokens[:-near].T @ tokens[:-near] / (length - near)
            r = tokens[-1] @ a @ far @ b
            v = theorem1.read(tokens[-near:], a, b)
            whole = theorem1.read(tokens, a, b)
            assert torch.allclose(whole, (near * v + (length - near) * r) / length)
            assert error <= theorem1.convex_bound(terms.near, _square(r - y), near, length) + 1e-12


def test_the_ratio_of_its_constants_grows_with_the_test_length_as_claimed():
    """C1 / C2 is K^2 / (K^2 + 1) as printed and 12 K^2 / (12 K^2 + 2) corrected; K grows to 1."""

    def ratio(bound, length: int) -> float:
        zero = Terms(0, 0, 0)
        c1 = bound(Terms(1, 0, 0), 0, 10, length) - bound(zero, 0, 10, length)
        # Both training errors are the one training loss.
        c2 = bound(Terms(0, 1, 1), 0, 10, length) - bound(zero, 0, 10, length)
        return c1 / c2

    for bound in (theorem1.printed_bound, theorem1.corrected_bound):
        ratios = [ratio(bound, length) for length in (11, 20, 50, 500)]
        assert ratios == sorted(ratios)
        assert ratios[0] < ratios[-1]
    assert ratio(theorem1.printed_bound, 10**6) == pytest.approx(1 / 2, rel=1e-4)
    assert ratio(theorem1.corrected_bound, 10**6) == pytest.approx(6 / 7, rel=1e-4)


def test_the_corrected_bound_says_nothing_beyond_the_training_length():
    """Two probability vectors are at most 2 apart in square, two unit vectors 4; unit outputs need C0 >= 1."""
    for length in range(11, 200):
        assert theorem1.corrected_bound(Terms(0, 0, 0), 0.0, 10, length) > 3
        assert theorem1.corrected_bound(Terms(0, 0, 0), 1.0, 10, length) > 4
