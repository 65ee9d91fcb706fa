"""The rule of verdicts on constructed rows and, by simulation, its error rates."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from lengthwise.measure.comparison import holm_corrected
from lengthwise.report.tables import Estimate
from lengthwise.results import Row
from lengthwise_studies.paired_claims import PairedClaim, Quantity
from lengthwise_studies.verdicts import (
    Judged,
    judge,
    over_seeds,
    range_over_seeds,
    values_over_seeds,
    verdict_table,
)

LOSS = Quantity(heading="loss at 2L", task="perplexity", metric="loss", times=2)
LOWER = PairedClaim(
    place="T",
    source="p. 1",
    says="lower",
    quantity=LOSS,
    arm="a",
    against="b",
    direction="lower",
    paper=(5.88, 6.12),
    paper_metric="perplexity",
)
SAME = replace(LOWER, direction="same", margin=0.02, says="same")
NOT_HIGHER = replace(LOWER, direction="not higher", margin=0.1, says="not higher")


def _rows(values: list[float], *, stderr: float = 0.01, documents: int = 20, **other: Any) -> list[Row]:
    fields = {"arm": "a", "reference": "b", "length": 200} | other
    return [
        Row(
            model="m",
            task="perplexity",
            metric="loss",
            value=value,
            stderr=stderr,
            documents=documents,
            seed=s,
            **fields,
        )
        for s, value in enumerate(values)
    ]


def _judge(values: list[float], claim: PairedClaim = LOWER, **other: Any) -> Judged:
    [judged] = judge([claim], _rows(values, **other), length=100)
    return judged


def test_the_interval_by_hand():
    # a = var([-.1, -.2, -.3]) / 3, b = .0016; t of 2 and 19 degrees of freedom: 4.302653 and 2.093024.
    judged = _judge([-0.1, -0.2, -0.3], stderr=0.04)
    a, b = 0.01 / 3, 0.0016
    half = (a * 4.302653 + b * 2.093024) / (a + b) * math.sqrt(a + b)
    assert judged.difference == pytest.approx(-0.2)
    assert (judged.low, judged.high) == pytest.approx((-0.2 - half, -0.2 + half))
    assert judged.verdict == "not distinguishable from noise"
    # The same number where no claim is judged.
    assert over_seeds(_rows([-0.1, -0.2, -0.3], stderr=0.04)) == Estimate(
        judged.difference, judged.low, judged.high, signed=True
    )
    assert over_seeds(_rows([-0.1, -0.2])) is None


def test_plain_values_have_students_interval_over_seeds():
    found = values_over_seeds([0.1, 0.2, 0.3])
    half = 4.302653 * 0.1 / math.sqrt(3)
    assert found == Estimate(pytest.approx(0.2), pytest.approx(0.2 - half), pytest.approx(0.2 + half))
    assert values_over_seeds([0.1, 0.2]) is None
    assert range_over_seeds(_rows([0.3, 0.1])) == Estimate(0.2, 0.1, 0.3)
    assert range_over_seeds([*_rows([0.3]), replace(_rows([0.1])[0], value=None)]) is None
    first, second = _rows([0.3, 0.1])
    bound = range_over_seeds([replace(first, at_least=True), second])
    assert bound is not None
    assert bound.at_least


def test_p_is_that_of_students_t_where_documents_add_nothing():
    values = [-0.1, -0.2, -0.3]
    judged = _judge(values, stderr=1e-9)
    assert judged.p_holm == pytest.approx(scipy.stats.ttest_1samp(values, 0).pvalue, rel=1e-5)


def test_the_paper_difference_is_of_logarithms():
    assert LOWER.paper_difference == pytest.approx(math.log(5.88 / 6.12))
    share = replace(LOWER, paper=(26.6, 24.7), paper_metric="LongBench-E")
    assert share.paper_difference == pytest.approx(0.019)


@pytest.mark.parametrize(
    ("values", "claim", "verdict"),
    [
        ([-0.1, -0.11, -0.09], LOWER, "reproduced"),
        ([0.1, 0.11, 0.09], LOWER, "opposite"),
        ([0.1, 0.11, 0.09], replace(LOWER, direction="higher"), "reproduced"),
        ([-0.1, 0.1, 0.0], LOWER, "not distinguishable from noise"),
        ([-0.1, -0.11], LOWER, "not run"),
        ([-0.1], LOWER, "not run"),
        ([], LOWER, "not run"),
        ([0.0, 0.001, -0.001], replace(SAME, margin=0.1), "reproduced"),
        ([0.0, 0.001, -0.001], replace(SAME, margin=0.001), "not distinguishable from noise"),
        ([0.2, 0.21, 0.19], SAME, "opposite"),
        ([-0.2, -0.21, -0.19], SAME, "opposite"),
        ([-0.2, -0.21, -0.19], NOT_HIGHER, "reproduced"),
        ([0.0, 0.001, -0.001], NOT_HIGHER, "reproduced"),
        ([0.2, 0.21, 0.19], NOT_HIGHER, "opposite"),
        ([0.1, 0.101, 0.099], NOT_HIGHER, "not distinguishable from noise"),
        ([0.2, 0.21, 0.19], replace(NOT_HIGHER, direction="not lower"), "reproduced"),
        ([-0.2, -0.21, -0.19], replace(NOT_HIGHER, direction="not lower"), "opposite"),
    ],
)
def test_verdicts(values, claim, verdict):
    assert _judge(values, claim).verdict == verdict


def test_documents_decide_as_well_as_seeds():
    # Equal seeds, but the documents leave the sign open.
    assert _judge([-0.1] * 3, stderr=0.2).verdict == "not distinguishable from noise"
    assert _judge([-0.1] * 3, documents=1).verdict == "not run"


def test_only_the_claimed_number_of_the_claimed_arms_counts():
    good = [-0.1, -0.11, -0.09]
    for other in ({"length": 100}, {"arm": "c"}, {"reference": "c"}, {"depth": 50.0}, {"position": 0}):
        assert _judge(good, **other).verdict == "not run"
    at = _rows(good, arm="a after 5 steps", reference="b after 5 steps")
    claim = replace(LOWER, steps=50)
    assert judge([claim], at, length=100, at={50: " after 5 steps"})[0].verdict == "reproduced"
    assert judge([claim], at, length=100)[0].verdict == "not run"


def test_holm_is_over_the_table():
    rows = _rows([-0.1, -0.12, -0.08])
    alone = judge([LOWER], rows, length=100)[0]
    among = judge([LOWER] * 20, rows, length=100)[0]
    assert alone.p_holm is not None
    assert among.p_holm == pytest.approx(min(1.0, 20 * alone.p_holm))
    assert (alone.verdict, among.verdict) == ("reproduced", "not distinguishable from noise")
    assert among.detectable > alone.detectable  # type: ignore[operator]
    assert holm_corrected([0.01, None, 0.04, 0.02]) == pytest.approx([0.03, None, 0.04, 0.04])


@pytest.mark.parametrize("truth", [0.0, "detectable"])
def test_error_rate_and_power_by_simulation(truth):
    rng = np.random.default_rng(0)
    seeds_sd, document_sd, documents, tables = 0.02, 0.03, 30, 300
    error = document_sd / math.sqrt(documents)
    effect = 0.0 if truth == 0.0 else _judge([0.02, 0.0, -0.02], stderr=error, documents=documents).detectable
    assert effect is not None
    seen = 0
    for _ in range(tables):
        text = rng.normal(0, error)
        values = (-effect + text + rng.normal(0, seeds_sd, size=3)).tolist()
        seen += _judge(values, stderr=error, documents=documents).verdict != "not distinguishable from noise"
    if truth == 0.0:
        assert seen / tables < 0.06
    else:
        # The estimated error itself varies, so the power is near the nominal 0.8.
        assert 0.65 < seen / tables < 0.95


@pytest.mark.parametrize("direction", ["same", "not higher", "not lower"])
def test_power_of_claims_with_a_margin_by_simulation(direction):
    """At the margin that is said to be seen in 80 % of cases, without a true difference."""
    rng = np.random.default_rng(1)
    seeds_sd, document_sd, documents, tables = 0.02, 0.03, 30, 300
    error = document_sd / math.sqrt(documents)
    claim = replace(SAME, direction=direction)
    margin = _judge([0.02, 0.0, -0.02], claim, stderr=error, documents=documents).detectable
    assert margin is not None
    seen = 0
    for _ in range(tables):
        values = (rng.normal(0, error) + rng.normal(0, seeds_sd, size=3)).tolist()
        judged = _judge(values, replace(claim, margin=margin), stderr=error, documents=documents)
        seen += judged.verdict == "reproduced"
    assert 0.65 < seen / tables < 0.95


def test_without_noise_nothing_is_said_of_what_could_be_seen():
    judged = _judge([0.0, 0.0, 0.0], stderr=0.0)
    assert judged.detectable is None
    assert "would have been seen" not in judged.sentence


def test_the_sentence_and_the_table_are_made_from_the_verdict():
    weak = _judge([-0.1, 0.1, 0.0])
    assert "not distinguishable from noise" in weak.sentence
    assert f"{weak.detectable:.2g}" in weak.sentence
    missing = _judge([-0.1])
    assert "not run" in missing.sentence
    table = verdict_table([weak, missing])
    assert [row[7] for row in table.rows] == [weak.verdict, f"not run: {missing.why}"]
