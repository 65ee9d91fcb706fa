"""The mean paired difference over seeds and documents: by hand and, by simulation, its error rates."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import scipy.stats

from lengthwise.errors import UsageError
from lengthwise.results import SIGNIFICANCE, Row
from lengthwise_studies.over_seeds import over_seeds


def _rows(*differences: tuple[float | None, float, int]) -> list[Row]:
    row = Row(model="m", task="perplexity", metric="loss", value=None)
    return [replace(row, value=value, stderr=error, documents=many) for value, error, many in differences]


def _over(values: list[float], *, error: float = 0.01, documents: int = 20):
    return over_seeds(_rows(*((value, error, documents) for value in values)))


def test_the_interval_by_hand():
    # a = var([-.1, -.2, -.3]) / 3, b = .0016; t of 2 and 19 degrees of freedom: 4.302653 and 2.093024.
    found = _over([-0.1, -0.2, -0.3], error=0.04)
    a, b = 0.01 / 3, 0.0016
    half = (a * 4.302653 + b * 2.093024) / (a + b) * math.sqrt(a + b)
    assert found.mean == pytest.approx(-0.2)
    assert found.interval == pytest.approx((-0.2 - half, -0.2 + half))
    # The ends of the interval are the truths that 5 % leave out.
    assert [found.p_value(end) for end in found.interval] == pytest.approx([0.05, 0.05], rel=1e-6)


def test_p_is_that_of_students_t_where_documents_add_nothing():
    values = [-0.1, -0.2, -0.3]
    found = _over(values, error=1e-9)
    for truth in (0.0, 0.05):
        by_scipy = scipy.stats.ttest_1samp(values, truth).pvalue
        assert found.p_value(truth) == pytest.approx(by_scipy, rel=1e-5)


def test_without_noise_the_signs_of_the_seeds_decide():
    found = _over([0.1, 0.1, 0.1], error=0.0)
    assert (found.interval, found.detectable()) == ((pytest.approx(0.1),) * 2, None)
    assert (found.p_value(), found.p_value(found.mean)) == (0.25, 1.0)


_BAD = ((0.1, 0.01, 1), (None, 0.01, 20))


@pytest.mark.parametrize(
    "differences", [[(0.1, 0.01, 20)] * 2, *([(0.1, 0.01, 20), bad, (0.1, 0.01, 20)] for bad in _BAD)]
)
def test_too_few_seeds_or_documents_are_refused(differences):
    with pytest.raises(UsageError):
        over_seeds(_rows(*differences))


@pytest.mark.parametrize(
    ("of_seeds", "truth"), [*product((0.001, 0.005, 0.02), (0.0,)), (0.02, "detectable")]
)
def test_error_rate_and_power_by_simulation(of_seeds, truth):
    rng = np.random.default_rng(0)
    documents, tables = 30, 600
    error = 0.03 / math.sqrt(documents)
    effect = (
        _over([of_seeds, 0.0, -of_seeds], error=error, documents=documents).detectable() if truth else 0.0
    )
    assert effect is not None
    seen = 0
    for _ in range(tables):
        values = (effect + rng.normal(0, error) + rng.normal(0, of_seeds, size=3)).tolist()
        seen += _over(values, error=error, documents=documents).p_value() < SIGNIFICANCE
    if truth:
        # The estimated error itself varies, so the power is near the nominal 0.8.
        assert 0.65 < seen / tables < 0.95
    else:
        # 5 %, and two standard errors of a share of 600.
        assert seen / tables < 0.05 + 2 * math.sqrt(0.05 * 0.95 / tables)


def test_a_margin_that_could_be_seen_by_simulation():
    """Both ends of the noise have to stay within the margin in 80 % of cases, without a true difference."""
    rng = np.random.default_rng(1)
    documents, tables = 30, 300
    error = 0.03 / math.sqrt(documents)
    margin = _over([0.02, 0.0, -0.02], error=error, documents=documents).detectable(both_ends=True)
    assert margin is not None
    seen = 0
    for _ in range(tables):
        values = (rng.normal(0, error) + rng.normal(0, 0.02, size=3)).tolist()
        found = _over(values, error=error, documents=documents)
        seen += abs(found.mean) < margin and found.p_value(math.copysign(margin, found.mean)) < SIGNIFICANCE
    assert 0.65 < seen / tables < 0.95
