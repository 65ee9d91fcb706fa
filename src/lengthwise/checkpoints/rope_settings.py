"""Which settings of rope some frequencies are of: every method is tried with what a configuration suggests."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import UsageError
from lengthwise.positions import ROPE_METHODS, rope_method
from lengthwise.positions.rope import Rope, plain_frequencies

Setting = tuple[str, float, float, float]
"""A rope method ("plain": none), its base, factor and original length."""


def recognised(
    actual: Tensor, claimed: Setting, longest: float, options: Mapping[str, Any], tolerance: float
) -> Setting | None:
    """The setting with the fewest changes of what is claimed that gives these frequencies; None if none does.

    Every method is tried with the bases, factors and original lengths that the frequencies, the claim, its
    `options` and the `longest` context suggest.
    """
    own, theta, factor, length = claimed
    d = 2 * len(actual)
    # Of plain frequencies by their range, of scaled ones by the fastest two, which most methods keep.
    slopes = [(actual[0] / actual[-1], d / max(d - 2, 1)), (actual[0] / actual[min(1, d // 2 - 1)], d / 2)]
    fitted = [float(ratio) ** power for ratio, power in slopes]
    ratio = float(plain_frequencies(theta, d)[-1] / actual[-1])
    # "linear by 1" is plain rope, which is the better name.
    methods = ("plain", own, *ROPE_METHODS)
    bases = (theta, *(float(f"{base:.3g}") for base in fitted), *fitted, 1e4, 5e5, 1e6)
    factors = (factor, float(f"{ratio:.5g}"), longest / length)
    lengths = (length, longest, length * factor, length / factor, *(2.0**power for power in range(8, 22)))
    settings = dict.fromkeys(itertools.product(methods, bases, factors, lengths))
    for setting in sorted(settings, key=lambda one: sum(map(operator.ne, one, claimed))):
        method, b, s, n = setting
        formulas = _formulas(method, options if method == own else {}, Rope(b, d, int(n), s))
        if any(torch.allclose(actual, one, rtol=tolerance, atol=0) for one in formulas):
            return setting
    return None


def _formulas(method: str, options: Mapping[str, Any], rope: Rope) -> list[Tensor]:
    """The frequencies of a method for inputs of the extended and the original length; none where it has none."""
    if not (1 < rope.theta < math.inf and 1 <= rope.factor < math.inf and rope.original_length >= 2):
        return []
    if method == "plain":
        return [rope.frequencies()]
    try:
        given = {key: options[key] for key in rope_method(method).keywords if key in options}
        formula = rope_method(method, given)
        return [formula(each).frequencies for each in (rope, replace(rope, length=rope.original_length))]
    except UsageError:
        return []
