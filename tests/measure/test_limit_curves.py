from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from checks.lab.limit_null import CURVES, NULLS, coverage, numbers
from lengthwise.measure.limit_headlines import (
    Headline,
    crossing,
    last_argmin,
    sound_headline,
    used_estimate,
    used_headline,
)


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
    # One document excludes nothing, so the whole curve counts.
    found = [crossing(curve[None]).steps for curve in curves]
    assert found == [(isotonic(curve) <= 0).sum() for curve in curves]


def test_the_last_place_of_the_least() -> None:
    assert last_argmin(np.array([[2.0, 1.0, 1.0, 3.0], [0.0, 1.0, 2.0, 3.0]])).tolist() == [2, 0]


def curve(*parts: tuple[int, float]) -> np.ndarray:
    """Four documents that are nearly alike."""
    mean = np.concatenate([np.full(bins, value) for bins, value in parts])
    return mean * np.array([0.9, 1.0, 1.0, 1.1])[:, None]


@pytest.mark.parametrize(
    ("beyond", "steps", "stop", "back"),
    [
        (curve((10, -1)), 10, 10, 10),
        (curve((10, 1)), 0, 10, 10),
        (curve((4, -1), (6, 1)), 4, 10, 10),
        (curve((4, -1), (3, 1), (3, -1)), 4, 7, 10),
        (curve((2, -1), (1, 1), (3, -1), (4, 1)), 2, 3, 6),
    ],
)
def test_a_clear_stretch_beyond_the_level_ends_the_curve(beyond, steps, stop, back):
    found = crossing(beyond)
    assert (found.steps, found.low, found.high) == (steps, steps, steps)
    assert (found.stop, found.back) == (stop, back)


def test_a_single_bad_bin_of_one_document_does_not() -> None:
    beyond = curve((10, -1))
    beyond[0, 3] = 9
    assert crossing(beyond).steps == 10


def used(*benefits: list[float], inside: list[float] | None = None) -> Headline:
    """Documents of one target each, at distances of 10, 20, 40, 80, and, of a passage from 10 on, 10 and 40."""
    inside = [1.0, 1.0] if inside is None else inside
    known = SimpleNamespace(sizes=(100, 20, 8), distances=(10, 20, 40, 80), inside=(10, (10, 40)), share=0.1)
    totals = np.array([[0.0] * 6 + each + inside + [1.0] for each in benefits])
    found = used_headline(known, totals)
    if found.value is not None:
        [alone] = used_estimate(known, totals.sum(axis=0, keepdims=True), head=found)
        assert alone == pytest.approx(found.value)
    return found


@pytest.mark.parametrize(
    ("benefit", "expected"),
    [
        ([1, 1, 1, 0], (np.sqrt(40 * 80), 40, 80)),
        ([1, 1, 0, 0], (np.sqrt(20 * 40), 20, 40)),
        ([1, 0.2, 0.05, 0.01], (np.sqrt(20 * 40), 20, 40)),
        ([1, 1, 1, 1], (80, 80, 80)),
        # A benefit that counts, of which a tenth would not.
        ([0.2, 0.2, 0.04, 0.04], (np.sqrt(20 * 40), 20, 40)),
        ([0.04, 0.04, 0.04, 0.04], None),
        ([-1, -1, 1, 1], None),
    ],
)
def test_used_up_to_takes_the_middle_of_the_two_distances(benefit: Any, expected: Any) -> None:
    found = used(*[benefit] * 3)
    assert (found.value is None) == (expected is None)
    if expected is not None:
        assert (found.value, found.low, found.high) == pytest.approx(expected)
    assert used(*[benefit] * 2).value is None


def test_what_is_inside_must_be_used_too_where_the_beginning_is() -> None:
    everywhere: list[float] = [1, 1, 1, 1]
    found = used(*[everywhere] * 3, inside=[1, 0])
    assert (found.value, found.low, found.high, found.beginning) == (20, 10, 40, 80)
    assert used(*[everywhere] * 3, inside=[0, 0]).value == 0
    # A passage from 10 on, 40 tokens back, lies behind 50: farther than the beginning is used.
    assert used(*[[1.0, 1.0, 0.0, 0.0]] * 3, inside=[1, 0]).value == pytest.approx(np.sqrt(20 * 40))


def test_documents_that_exclude_nothing_give_no_number() -> None:
    """One is far above the tolerance from the beginning, one far below, one at it."""
    totals = np.array([[2.0] * 12 + [1], [-1.0] * 12 + [1], [0.8] * 12 + [1]])
    known = SimpleNamespace(sizes=(160, 64, 8), tolerance=0.1)
    assert sound_headline(known, totals).value is None


@pytest.mark.parametrize("name", NULLS)
@pytest.mark.parametrize("documents", [2, 8])
def test_without_a_benefit_there_is_no_number(name: str, documents: int) -> None:
    assert numbers(name, documents, runs=200) <= 0.05


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("documents", [3, 8])
def test_the_intervals_cover_the_true_limit(name: str, documents: int) -> None:
    given, covered = coverage(name, documents, runs=60)
    assert covered >= 0.93 * given - 2 * (given * 0.07 * 0.93) ** 0.5
