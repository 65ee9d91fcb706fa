"""Partial correlations and errors over models against formulas; verdicts on constructed models."""

import math

import numpy as np
import pytest
import scipy.stats

from lengthwise_studies.claims import EXCLUDED, OPPOSITE, Claim, judge
from lengthwise_studies.paper.correlations import Correlation, Extended, Key, over_models, partial_correlation
from lengthwise_studies.paper.table1 import THEIRS, of_the_papers_models


def test_partial_correlation_of_one_control_is_the_textbook_formula():
    rng = np.random.default_rng(0)
    z = rng.normal(size=30)
    x, y = z + rng.normal(size=30), 0.5 * z + rng.normal(size=30)
    xy, xz, yz = (scipy.stats.pearsonr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    by_hand = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_correlation(x, y, [z]) == pytest.approx(by_hand)
    assert partial_correlation(x, y) == pytest.approx(xy)
    assert math.isnan(partial_correlation(x, 3 * z + 1, [z]))


@pytest.mark.parametrize("twins", [1, 5])
@pytest.mark.parametrize("test", [Correlation("x", "y"), Correlation("x", "y", stronger_than="z")])
def test_twins_do_not_count_as_models(test: Correlation, twins: int):
    """Ten models, each with its extensions, on which every number hardly differs. True nulls reject in about 5 %."""
    rng, said = np.random.default_rng(1), 0
    for _ in range(300):
        y = rng.normal(size=10)
        own = {"x": rng.normal(size=10), "y": y}
        if test.stronger_than:
            own |= {name: y + rng.normal(size=10) for name in "xz"}
        models = {
            Key(f"m{at}", "method" if twin else "", twin): {
                name: values[at] + 0.3 * rng.normal() for name, values in own.items()
            }
            for at in range(10)
            for twin in range(twins)
        }
        found = test(models)
        assert found.p is not None
        said += found.p < 0.05
    assert said / 300 < 0.1


def test_standard_errors_leave_out_one_model_after_the_other():
    values = [1.0, 2.0, 4.0, 9.0]
    mean, error, degrees = over_models(
        lambda columns: float(np.mean(columns[0])),
        {Key(f"m{at}"): [value] for at, value in enumerate(values)},
    )
    # For a mean this is the usual standard error.
    assert (mean, error, degrees) == (4.0, pytest.approx(np.std(values, ddof=1) / 2), 2)


def test_verdicts():
    rng = np.random.default_rng(2)
    score = rng.normal(size=40)
    close, weak, noise = (score + size * rng.normal(size=40) for size in (0.1, 2.0, 100.0))
    models = {
        Key(f"m{at}"): {"close": c, "weak": w, "noise": n, "score": s}
        for at, (c, w, n, s) in enumerate(zip(close, weak, noise, score, strict=True))
    }
    for own in models.values():
        own["minus"] = -own["close"]
    tests = (
        Correlation("close", "score"),
        Correlation("minus", "score"),
        Correlation("noise", "score", size=0.96),
        Correlation("close", "score", stronger_than="weak"),
        Correlation("weak", "score", given=("close",)),
        Correlation("other", "score"),
    )
    claims = [Claim(place="", says="", test=test) for test in tests]
    found = judge(claims, models)
    assert [one.verdict for one in found] == [
        "reproduced",
        OPPOSITE,
        EXCLUDED,
        "reproduced",
        "not decided",
        "not run",
    ]
    assert found[2].detectable is not None
    assert 0.3 < found[2].detectable < 0.7
    few = {name: models[name] for name in list(models)[:7]}
    assert {one.verdict for one in judge(claims, few)} == {"not run"}


def test_a_correlation_of_the_papers_size_is_not_excluded():
    """Forty models with a true correlation of 0.9 exclude 0.2 and 0.99, and hardly ever 0.9."""
    rng, excluded = np.random.default_rng(3), {0.2: 0, 0.9: 0, 0.99: 0}
    for _ in range(60):
        x = rng.normal(size=40)
        y = 0.9 * x + math.sqrt(1 - 0.81) * rng.normal(size=40)
        models = {
            Key(f"m{at}"): {"x": one, "y": other} for at, (one, other) in enumerate(zip(x, y, strict=True))
        }
        for size in excluded:
            p = Correlation("x", "y", size=size)(models).p_size
            assert p is not None
            excluded[size] += p < 0.05
    assert excluded[0.2] == excluded[0.99] == 60
    assert excluded[0.9] < 10


@pytest.mark.parametrize(("change", "verdict"), [(-0.2, "reproduced"), (0.2, OPPOSITE)])
def test_extended_models_count_once_and_against_themselves(change: float, verdict: str):
    """Models differ by 3, extensions by 0.2: the difference is of each model from itself."""
    rng, models = np.random.default_rng(4), {}
    for at, level in enumerate(rng.normal(size=10) * 3):
        models[Key(f"m{at}")] = {"x": level}
        for method in ("pi", "yarn"):
            models[Key(f"m{at}", method, 4)] = {"x": level + change + 0.05 * rng.normal()}
    [found] = judge([Claim(place="", says="", test=Extended("x"))], models)
    per_model = [
        np.mean([models[Key(f"m{at}", method, 4)]["x"] for method in ("pi", "yarn")])
        - models[Key(f"m{at}")]["x"]
        for at in range(10)
    ]
    assert (found.verdict, found.found.n) == (verdict, 10)
    assert found.found.p == pytest.approx(scipy.stats.ttest_1samp(per_model, 0.0).pvalue)
    assert found.found.ours.value == pytest.approx(np.mean(per_model))
    few = {name: own for name, own in models.items() if int(name.model[1]) < 7}
    assert Extended("x")(few).verdict == "not run"


def test_the_papers_own_table():
    # Its coefficient of the training loss, 0.67, is Spearman's; Pearson's is 0.76.
    columns = np.array(list(THEIRS.values())).T
    assert scipy.stats.spearmanr(columns[0], columns[2]).statistic == pytest.approx(0.67, abs=0.005)
    assert partial_correlation(columns[0], columns[2]) == pytest.approx(0.760, abs=0.001)
    assert partial_correlation(columns[1], columns[2]) == pytest.approx(0.961, abs=0.001)
    # The printed -0.59 is neither.
    assert partial_correlation(columns[0], columns[3]) == pytest.approx(-0.79, abs=0.005)
    assert scipy.stats.spearmanr(columns[0], columns[3]).statistic == pytest.approx(-0.56, abs=0.005)
    assert partial_correlation(columns[1], columns[3]) == pytest.approx(-0.96, abs=0.005)
    assert "0.35" in of_the_papers_models()
