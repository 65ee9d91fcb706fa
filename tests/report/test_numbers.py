from __future__ import annotations

import pytest

from lengthwise.report.numbers import Estimate


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(6.8973, 6.8123, 6.9832), "6.897 [6.812, 6.983]"),
        (Estimate(0.00713, 0.00672, 0.00751), "0.00713 [0.00672, 0.00751]"),
        (Estimate(24.913, 22.7, 27.2), "24.9 [22.7, 27.2]"),
        (Estimate(1234.4, 1000.0, 1500.0), "1234 [1000, 1500]"),
        (Estimate(0.0312, 0.0211, 0.0413, signed=True), "+0.031 [+0.021, +0.041]"),
        (Estimate(-0.0312, -0.0413, -0.0211, signed=True), "-0.031 [-0.041, -0.021]"),
        (Estimate(0.00001, -0.02, 0.02, signed=True), "+0.000 [-0.020, +0.020]"),
        (Estimate(-0.00001, -0.02, 0.02), "0.000 [-0.020, 0.020]"),
        (Estimate(3.14159), "3.142"),
        (Estimate(31415.9), "31416"),
        (Estimate(0.0000000123), "0.000000"),
        (Estimate(0.0), "0"),
        (Estimate(2.0, 2.0, 2.0), "2.000 [2.000, 2.000]"),
        (Estimate(None), "n/a"),
        (Estimate(None, 1.0, 2.0), "n/a"),
        (Estimate(1.5, 1.0, None), "1.500"),
    ],
)
def test_as_many_digits_as_the_interval_justifies(estimate: Estimate, text: str) -> None:
    assert estimate.text == text
