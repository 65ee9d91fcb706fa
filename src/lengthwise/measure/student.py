"""Student's t: the tail, and the value that leaves a given tail. Plain floats; needs no scipy."""

from __future__ import annotations

import math

SIGNIFICANCE = 0.05
"""The chance of calling noise more than noise that is accepted, for a whole table."""
_TERMS = 300


def two_sided_p(t: float, degrees: int) -> float:
    """P(|T| >= |t|) with T of Student's t at `degrees` degrees of freedom.

    It is the regularised incomplete beta function I_x(degrees / 2, 1 / 2) at x = degrees / (degrees + t^2).
    """
    if math.isinf(t):
        return 0.0
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def two_sided_t(p: float, degrees: int) -> float:
    """The t > 0 with P(|T| >= t) = p, by bisection."""
    low, high = 0.0, 1.0
    while two_sided_p(high, degrees) > p:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided_p(middle, degrees) > p else (low, middle)
    return (low + high) / 2


def _incomplete_beta(x: float, a: float, b: float) -> float:
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The continued fraction converges fast on this side of the mean.
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    )
    return front * _fraction(x, a, b) / a


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction 1 / (1 + d1 / (1 + d2 / (1 + ...))) of DLMF 8.17.22, from its far end."""
    value = 1.0
    for step in range(_TERMS, 0, -1):
        half = step // 2
        if step % 2:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        else:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        value = 1 + term / value
    return 1 / value
