"""Partial correlations and Williams's t against formulas; verdicts on constructed models."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from lengthwise_studies.claims import OPPOSITE, Claim, judge
from lengthwise_studies.paper.table1 import (
    PRINTED,
    Correlation,
    of_the_papers_models,
    partial_correlation,
    williams_t,
)


def test_partial_correlation_of_one_control_is_the_textbook_formula():
    rng = np.random.default_rng(0)
    z = rng.normal(size=30)
    x, y = z + rng.normal(size=30), 0.5 * z + rng.normal(size=30)
    xy, xz, yz = (scipy.stats.pearsonr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    by_hand = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_correlation(x, y, [z]) == pytest.approx(by_hand)
    assert partial_correlation(x, y) == pytest.approx(xy)
    assert math.isnan(partial_correlation(x, 3 * z + 1, [z]))


def test_williams_t_by_simulation():
    # x and z go equally well with y, so at most about 5 % of tests may say otherwise.
    rng, n, said = np.random.default_rng(1), 20, 0
    for _ in range(400):
        y = rng.normal(size=n)
        x, z = y + rng.normal(size=n), y + rng.normal(size=n)
        xy, zy, xz = (float(np.corrcoef(*pair)[0, 1]) for pair in ((x, y), (z, y), (x, z)))
        said += abs(williams_t(xy, zy, xz, n)) > scipy.stats.t.ppf(0.975, n - 3)
    assert 0.02 < said / 400 < 0.08


def test_verdicts():
    rng = np.random.default_rng(2)
    score = rng.normal(size=40)
    close, weak, noise = (score + size * rng.normal(size=40) for size in (0.1, 2.0, 100.0))
    models = {
        f"m{at}": {"close": c, "weak": w, "noise": n, "score": s}
        for at, (c, w, n, s) in enumerate(zip(close, weak, noise, score, strict=True))
    }
    for own in models.values():
        own["minus"] = -own["close"]
    tests = (
        Correlation("close", "score"),
        Correlation("minus", "score"),
        Correlation("noise", "score"),
        Correlation("close", "score", stronger_than="weak"),
        Correlation("weak", "score", given=("close",)),
        Correlation("other", "score"),
    )
    claims = [Claim(place="", says="", test=test) for test in tests]
    found = judge(claims, models)
    assert [one.verdict for one in found] == [
        "reproduced",
        OPPOSITE,
        "not distinguishable from noise",
        "reproduced",
        "not distinguishable from noise",
        "not run",
    ]
    assert found[2].detectable is not None
    assert 0.3 < found[2].detectable < 0.7
    few = {name: models[name] for name in list(models)[:11]}
    assert {one.verdict for one in judge(claims, few)} == {"not run"}


def test_the_papers_own_table():
    # Its coefficient of the training loss, 0.67, is Spearman's; Pearson's is 0.76.
    columns = np.array(list(PRINTED.values())).T
    assert scipy.stats.spearmanr(columns[0], columns[2]).statistic == pytest.approx(0.67, abs=0.005)
    assert partial_correlation(columns[0], columns[2]) == pytest.approx(0.760, abs=0.001)
    assert partial_correlation(columns[1], columns[2]) == pytest.approx(0.961, abs=0.001)
    # By hand: |R| = 0.0220, m = 0.8603, so t = 0.2009 sqrt(6 * 1.6278 / 0.1042).
    assert williams_t(0.9607, 0.7598, 0.6278, 7) == pytest.approx(1.945, abs=0.01)
    # The printed -0.59 is neither.
    assert partial_correlation(columns[0], columns[3]) == pytest.approx(-0.79, abs=0.005)
    assert scipy.stats.spearmanr(columns[0], columns[3]).statistic == pytest.approx(-0.56, abs=0.005)
    assert partial_correlation(columns[1], columns[3]) == pytest.approx(-0.96, abs=0.005)
    assert "0.12" in of_the_papers_models()
