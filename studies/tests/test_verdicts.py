"""Verdicts on claims about constructed rows, and the table of verdicts."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats

from lengthwise.measure.difference import holm_corrected
from lengthwise.report.tables import Estimate
from lengthwise.results import Row
from lengthwise_studies.claims import (
    EXCLUDED,
    FAILS,
    HOLDS,
    NOT_DECIDED,
    NOT_JUDGED,
    NOT_RUN,
    OPPOSITE,
    OUTSIDE,
    REPRODUCED,
    Claim,
    Judged,
    Rule,
    rules_table,
    shown_p,
    verdict_table,
)
from lengthwise_studies.claims import judge as judge_all
from lengthwise_studies.paired_claims import (
    Measured,
    Paired,
    Quantity,
    estimate_over_seeds,
    range_over_seeds,
)
from studies.tests.made import by_seed

LOSS = Quantity(heading="loss at 2L", task="perplexity", metric="loss", times=2)
LOWER = Paired(quantity=LOSS, arm="a", against="b", direction="lower")
HIGHER = replace(LOWER, direction="higher")
SAME = replace(LOWER, direction="same", margin=0.02)
NOT_HIGHER = replace(LOWER, direction="not higher", margin=0.1)
NOT_LOWER = replace(NOT_HIGHER, direction="not lower")
GOOD = [-0.1, -0.11, -0.09]


def rows(values: list[float], *, stderr: float = 0.01, documents: int = 20, **other: Any) -> list[Row]:
    fields = {"arm": "a", "reference": "b", "length": 200} | other
    return by_seed(values, stderr=stderr, documents=documents, **fields)


def judge(found: list[Row], *tests: Paired, steps: dict[int, str] | None = None) -> list[Judged]:
    claims = [Claim(place="T", says="it does", test=test) for test in tests or (LOWER,)]
    return judge_all(claims, Measured(rows=found, length=100, steps=steps or {}))


@pytest.mark.parametrize(
    ("values", "test", "verdict"),
    [
        (GOOD, LOWER, REPRODUCED),
        ([0.1, 0.11, 0.09], LOWER, OPPOSITE),
        ([0.1, 0.11, 0.09], HIGHER, REPRODUCED),
        ([-0.1, 0.1, 0.0], LOWER, NOT_DECIDED),
        ([-0.1, -0.11], LOWER, NOT_RUN),
        ([], LOWER, NOT_RUN),
        ([0.0, 0.001, -0.001], replace(SAME, margin=0.1), REPRODUCED),
        ([0.0, 0.001, -0.001], replace(SAME, margin=0.001), NOT_DECIDED),
        ([0.2, 0.21, 0.19], SAME, OUTSIDE),
        ([-0.2, -0.21, -0.19], SAME, OUTSIDE),
        ([-0.2, -0.21, -0.19], NOT_HIGHER, REPRODUCED),
        ([0.0, 0.001, -0.001], NOT_HIGHER, REPRODUCED),
        ([0.2, 0.21, 0.19], NOT_HIGHER, OUTSIDE),
        ([0.1, 0.101, 0.099], NOT_HIGHER, NOT_DECIDED),
        ([0.2, 0.21, 0.19], NOT_LOWER, REPRODUCED),
        ([-0.2, -0.21, -0.19], NOT_LOWER, OUTSIDE),
    ],
)
def test_verdicts(values, test, verdict):
    assert judge(rows(values), test)[0].verdict == verdict


@pytest.mark.parametrize(
    ("direction", "mean", "bound"),
    [
        *(("same", mean, math.copysign(0.1, mean)) for mean in (0.05, -0.05, 0.25, -0.25)),
        *(("not higher", mean, 0.1) for mean in (-0.05, 0.25)),
        *(("not lower", mean, -0.1) for mean in (0.05, -0.25)),
    ],
)
def test_p_is_of_the_end_of_the_margin_that_separates(direction, mean, bound):
    """Where documents add nothing it is Student's."""
    values = [mean - 0.01, mean, mean + 0.01]
    [found] = judge(rows(values, stderr=1e-9), replace(SAME, direction=direction, margin=0.1))
    assert found.p == pytest.approx(scipy.stats.ttest_1samp(values, bound).pvalue, rel=1e-5)


def test_p_in_a_cell():
    assert [shown_p(p) for p in (None, 0.0009, 0.001, 0.0123, 1.0)] == ["", "< 0.001", "0.001", "0.012", "1"]


@pytest.mark.parametrize(
    ("values", "size", "verdict", "excluded"),
    [
        # The planted effect is the paper's: it is seen, and its size is possible.
        ([-0.039, -0.041, -0.040], -0.04, REPRODUCED, False),
        # No effect in narrow numbers: the paper's size is excluded, and nothing is shown.
        ([0.001, -0.002, 0.001], -0.04, EXCLUDED, True),
        # No effect in wide numbers could not have been seen, so nothing is judged.
        ([0.06, -0.07, 0.01], -0.04, NOT_DECIDED, False),
        # An effect in the other direction excludes it too; so does one that is ten times as large.
        ([0.039, 0.041, 0.040], -0.04, OPPOSITE, True),
        ([-0.39, -0.41, -0.40], -0.04, REPRODUCED, True),
        ([0.001, -0.002, 0.001], None, NOT_DECIDED, None),
    ],
)
def test_what_is_said_of_a_size_that_was_seen_unseen_or_excluded(values, size, verdict, excluded):
    [found] = judge(rows(values, stderr=0.001), replace(LOWER, size=size))
    assert (found.verdict, found.excluded) == (verdict, excluded)
    # A verdict that decides nothing says what could have been seen, and no other does.
    assert ("could see" in found.text) == (verdict == NOT_DECIDED)


def test_no_more_true_sizes_are_excluded_than_the_level_allows():
    """Three seeds around the paper's own size, in a table of one claim."""
    rng = np.random.default_rng(0)
    said = 0
    for _ in range(400):
        values = (-0.04 + rng.normal(0, 0.01) + rng.normal(0, 0.01, size=3)).tolist()
        said += bool(judge(rows(values, stderr=0.01), replace(LOWER, size=-0.04))[0].excluded)
    assert said / 400 < 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)


def test_the_tests_against_sizes_are_corrected_by_themselves():
    wide = replace(LOWER, size=-0.04)
    found = rows([0.004, -0.004, 0.012], stderr=0.001)
    [alone], among = judge(found, wide), judge(found, *[wide] * 9, replace(LOWER, size=None))[0]
    assert alone.p_size is not None
    assert among.p_size == pytest.approx(min(1.0, 9 * alone.p_size))
    assert (alone.verdict, among.verdict) == (EXCLUDED, NOT_DECIDED)


def test_numbers_that_differ_nowhere_decide_nothing():
    [found] = judge(rows([0.0, 0.0, 0.0], stderr=0.0), replace(LOWER, size=-0.14))
    assert found.text == f"{NOT_DECIDED}: no number differs in any seed"


def test_a_claim_that_a_scale_cannot_judge_takes_no_part_in_the_correction():
    others = Claim(place="T", says="on books", test=LOWER, unless=lambda scale: f"{scale} is no book")
    claims = [Claim(place="T", says="it does", test=LOWER), others]
    one, other = judge_all(claims, Measured(rows=rows(GOOD), length=100), "code")
    assert other.text == f"{NOT_JUDGED}: code is no book"
    assert other.found.ours is None
    assert one.p == judge(rows(GOOD))[0].p


def test_documents_decide_as_well_as_seeds():
    # Equal seeds, but the documents leave the sign open.
    assert judge(rows([-0.1] * 3, stderr=0.2))[0].verdict == NOT_DECIDED
    assert judge(rows([-0.1] * 3, documents=1))[0].verdict == NOT_RUN


def test_only_the_claimed_number_of_the_claimed_arms_counts():
    for other in ({"length": 100}, {"arm": "c"}, {"reference": "c"}, {"depth": 50.0}, {"position": 0}):
        assert judge(rows(GOOD, **other))[0].verdict == NOT_RUN
    at = rows(GOOD, arm="a after 5 steps", reference="b after 5 steps")
    early = replace(LOWER, steps=50)
    assert judge(at, early, steps={50: " after 5 steps"})[0].verdict == REPRODUCED
    assert judge(at, early)[0].verdict == NOT_RUN


def test_holm_is_over_the_table():
    found = rows([-0.1, -0.12, -0.08])
    [alone], among = judge(found), judge(found, *[LOWER] * 20)[0]
    assert alone.p is not None
    assert among.p == pytest.approx(min(1.0, 20 * alone.p))
    assert (alone.verdict, among.verdict) == (REPRODUCED, NOT_DECIDED)
    assert among.detectable > alone.detectable  # type: ignore[operator]
    assert holm_corrected([0.01, None, 0.04, 0.02]) == pytest.approx([0.03, None, 0.04, 0.04])


def test_means_over_seeds():
    # The same number where no claim is judged.
    assert estimate_over_seeds(rows(GOOD)) == judge(rows(GOOD))[0].found.ours
    assert estimate_over_seeds(rows(GOOD[:2])) is None
    first, second = rows([0.3, 0.1])
    assert range_over_seeds([first, second]) == Estimate(0.2, 0.1, 0.3)
    assert range_over_seeds([first, replace(second, value=None)]) is None
    assert range_over_seeds([replace(first, at_least=True), second]).at_least  # type: ignore[union-attr]


def test_one_table_has_the_claims_of_all_tests():
    weak, missing = judge(rows([-0.1, 0.1, 0.0]), replace(LOWER, size=-0.1), replace(SAME, arm="c"))
    table = verdict_table([weak, missing])
    columns = ["p (Holm)", "verdict", "the paper's size, could be seen"]
    assert table.columns == ["place", "claim", "ours, nats", *columns]
    assert [row[4:] for row in table.rows] == [
        [f"{NOT_DECIDED} (could see {weak.detectable:.2g})", f"possible, {weak.detectable:.2g}"],
        [f"{NOT_RUN}: not measured at this scale", ""],
    ]
    rules = rules_table([weak.claim, missing.claim])
    assert [row[2] for row in rules.rows] == [
        "loss at 2L, a minus b: below 0",
        "loss at 2L, c minus b: within 0.02 nats of 0",
    ]
    rule = Rule(
        "it is above 1",
        lambda number: None if number is None else (str(number), HOLDS if number > 1 else FAILS),
    )
    claim = Claim(place="Eq. 1", says="it is large", paper="2", test=rule)
    table = verdict_table(judge_all([claim], 0.5), ours="ours, in short")
    assert table.columns == ["place", "claim", "paper", "ours, in short", "verdict", "rule"]
    assert table.rows == [["Eq. 1", "it is large", "2", "0.5", FAILS, "it is above 1"]]
    assert verdict_table(judge_all([claim], None)).rows == [], (
        "numbers that hold nothing about a claim leave it out"
    )
