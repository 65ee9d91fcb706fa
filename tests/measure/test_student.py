from __future__ import annotations

import math

import pytest

from lengthwise.measure.student import two_sided_p, two_sided_t


@pytest.mark.parametrize("t", [0.0, 0.01, 0.7, 1.0, 3.0, 40.0])
def test_closed_forms(t: float):
    assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-12)
    assert two_sided_p(t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert two_sided_p(-t, 2) == two_sided_p(t, 2)


# Two-sided 5 % and 0.1 % points of the printed tables.
@pytest.mark.parametrize(
    ("degrees", "p", "t"),
    [(3, 0.05, 3.1824), (7, 0.05, 2.3646), (10, 0.001, 4.5869), (30, 0.05, 2.0423), (120, 0.001, 3.3735)],
)
def test_tables(degrees: int, p: float, t: float):
    assert two_sided_p(t, degrees) == pytest.approx(p, rel=1e-3)
    assert two_sided_t(p, degrees) == pytest.approx(t, abs=1e-4)


def test_many_degrees_are_normal():
    assert two_sided_p(1.959964, 10**6) == pytest.approx(0.05, rel=1e-4)
    assert two_sided_p(math.inf, 4) == 0
