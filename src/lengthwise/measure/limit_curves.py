"""Where a curve of `limit` crosses a level for good.

A limit is the length that minimises the cumulative sum of (excess - tolerance), or of (level - benefit). It is
where the isotonic (rising or falling) fit of the curve crosses the level, so a single bad bin before it does not
count and no smoothing width needs choosing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def rises_above(curves: NDArray[np.float64], level: NDArray[np.float64]) -> NDArray[np.int64]:
    """The number of steps of each curve before it rises above its level for good.

    argmin over k of sum over i < k of (curve_i - level); the largest such k. Curves [R, B], level [R] -> [R],
    0 .. B.
    """
    paid = np.cumsum(curves - level[:, None], axis=1)
    paid = np.concatenate([np.zeros((len(curves), 1)), paid], axis=1)
    return paid.shape[1] - 1 - paid[:, ::-1].argmin(axis=1)


def sound_up_to(
    totals: NDArray[np.float64], *, start: int, width: int, tolerance: float
) -> NDArray[np.float64]:
    """Tokens of context up to which the mean excess loss stays within `tolerance` (nats a token): [R].

    `totals` [R, B + 1] are the summed excess of each bin of `width` rows, the first after `start` tokens, and the
    number of windows.
    """
    excess = totals[:, :-1] / (totals[:, -1:] * width)
    return start + width * rises_above(excess, np.full(len(totals), tolerance)).astype(np.float64)


def benefits(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Benefit a token at each of K distances: [R, K].

    `totals` [R, 2 K + 1] are the losses after the same passage at each distance, after a different one, and the
    number of targets.
    """
    count = totals.shape[1] // 2
    return (totals[:, count : 2 * count] - totals[:, :count]) / totals[:, -1:]


def used_level(totals: NDArray[np.float64], *, near: int, share: float) -> NDArray[np.float64]:
    """`share` of the mean benefit at the first `near` distances: [R]. Totals as in `benefits`."""
    return share * benefits(totals)[:, :near].mean(axis=1)


def used_up_to(
    totals: NDArray[np.float64], *, distances: Sequence[int], near: int, share: float
) -> NDArray[np.float64]:
    """Tokens of distance up to which the benefit stays above `used_level`: [R]. Totals as in `benefits`.

    The middle (geometric) of the last distance within and the first beyond; the greatest distance if all
    are within, 0 if none is. NaN where nearby there is no benefit.
    """
    level = used_level(totals, near=near, share=share)
    steps = rises_above(-benefits(totals), -level)
    grid = np.asarray(distances, dtype=np.float64)
    places = np.concatenate([[0.0], np.sqrt(grid[:-1] * grid[1:]), grid[-1:]])
    return np.where(level > 0, places[steps], np.nan)
