from __future__ import annotations

import numpy as np
import pytest

from lengthwise.measure.limit_curves import rises_above, sound_up_to, used_up_to
from lengthwise.measure.statistics import Statistic, estimate
from lengthwise.results import Row


def isotonic(curve: np.ndarray) -> np.ndarray:
    """The rising fit by its max-min formula: at k, max over i <= k of min over j >= k of mean(i .. j)."""
    size = len(curve)
    return np.array(
        [max(min(curve[i : j + 1].mean() for j in range(k, size)) for i in range(k + 1)) for k in range(size)]
    )


@pytest.mark.parametrize("seed", range(5))
def test_it_is_where_the_rising_fit_crosses_the_level(seed: int):
    rng = np.random.default_rng(seed)
    curves = np.linspace(-1, 1, 25) + rng.normal(size=(8, 25))
    levels = rng.normal(size=8) / 3
    expected = [(isotonic(curve) <= level).sum() for curve, level in zip(curves, levels, strict=True)]
    assert rises_above(curves, levels).tolist() == expected


def test_ends_and_a_single_bad_bin():
    flat = np.zeros((1, 10))
    assert rises_above(flat, np.array([0.1])) == [10]
    assert rises_above(flat, np.array([-0.1])) == [0]
    spike = flat.copy()
    spike[0, 3] = 0.5
    assert rises_above(spike, np.array([0.1])) == [10]


def test_used_up_to_takes_the_middle_of_the_two_distances():
    distances = (10, 20, 40, 80)

    def used(*benefit: float) -> float:
        totals = np.array([[0.0] * 4 + [12 * value for value in benefit] + [12.0]])
        return used_up_to(totals, distances=distances, near=2, share=0.1).item()

    assert used(1, 1, 1, 0) == pytest.approx(np.sqrt(40 * 80))
    assert used(1, 1, 0, 0) == pytest.approx(np.sqrt(20 * 40))
    assert used(1, 0.2, 0.05, 0.01) == pytest.approx(np.sqrt(20 * 40))
    assert used(1, 1, 1, 1) == 80
    assert np.isnan(used(-1, -1, 1, 1))


@pytest.mark.parametrize("shape", ["jump", "slope"])
def test_the_interval_covers_the_true_limit(shape: str):
    """Documents that differ from each other, tokens with noise as large as on real text."""
    bins, width, windows, true = 60, 128, 10, 40
    place = np.arange(bins) + 0.5
    mean = np.where(place > true, 1.0, -0.05) if shape == "jump" else 0.1 + (place - true) * 0.05
    covered = 0
    repetitions = 120
    for repetition in range(repetitions):
        rng = np.random.default_rng(repetition)
        # A document may hold out longer or shorter than the mean; noise of 0.8 nats a token.
        shift = rng.normal(scale=0.1, size=(windows, 1))
        sums = width * (mean + shift + rng.normal(scale=0.8 / np.sqrt(width), size=(windows, bins)))
        records = [(f"d{index}", [*line, 1]) for index, line in enumerate(sums)]
        row = Row(model="m", task="limit", metric="sound_up_to", value=None)

        def estimator(totals: np.ndarray) -> np.ndarray:
            return sound_up_to(totals, start=0, width=width, tolerance=0.1)

        found = estimate(Statistic.of(row, records, estimator=estimator))
        assert found.ci_low is not None
        assert found.ci_high is not None
        covered += found.ci_low - width <= true * width <= found.ci_high + width
    assert covered / repetitions >= 0.9
