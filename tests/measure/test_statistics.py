import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lengthwise.measure import statistics
from lengthwise.measure.difference import holm
from lengthwise.measure.statistics import (
    Statistic,
    clearly_beyond,
    estimate,
    estimate_difference,
    expanded_tail,
    few_documents,
    ratio,
    students_t,
    two_sided_p,
)
from lengthwise.results import Row

ROW = Row(model="m", task="t", metric="x", value=None, n=3)


def statistic(records, **kwargs) -> Statistic:
    return Statistic.of(ROW, records, **kwargs)


def test_the_value_is_the_ratio_of_the_totals():
    row = estimate(statistic([("a", [6, 2]), ("b", [1, 1]), ("a", [5, 3])]))
    assert row.value == pytest.approx(12 / 6)
    assert row.documents == 2
    assert row.n == 3


def test_it_is_the_same_in_any_order_and_each_time():
    records = [(f"d{i % 7}", [float(i), 1.0]) for i in range(30)]
    assert estimate(statistic(records)) == estimate(statistic(records[::-1]))


def test_the_standard_error_of_a_mean_of_equal_documents():
    values = np.random.default_rng(0).normal(size=40)
    row = estimate(statistic([(f"d{i}", [value, 1]) for i, value in enumerate(values)]))
    assert row.stderr == pytest.approx(values.std(ddof=1) / math.sqrt(40), rel=0.06)
    assert row.ci_low == pytest.approx(row.value - 2.02 * row.stderr, abs=0.25 * row.stderr)
    assert row.ci_high == pytest.approx(row.value + 2.02 * row.stderr, abs=0.25 * row.stderr)


@pytest.mark.parametrize(
    ("records", "value"),
    [
        ([("a", [1, 1]), ("a", [2, 1])], 1.5),
        ([("a", [0, 0]), ("b", [0, 0])], None),
        ([("a", [0, 0]), ("b", [0, 0]), ("c", [3, 2])], 1.5),
    ],
    ids=["one document", "an empty bin", "a bin that one document of three reaches"],
)
def test_without_an_interval(records, value):
    row = estimate(statistic(records))
    assert (row.value, row.stderr, row.ci_low, row.ci_high) == (value, None, None, None)
    assert [len(few_documents(count, "documents")) for count in (1, 8)] == [1, 0]


@pytest.mark.parametrize("t", [0.01, 0.7, 1.0, 3.0, 40.0])
def test_students_t_in_closed_form(t: float):
    assert two_sided_p(t, 1) == pytest.approx(1 - 2 / math.pi * math.atan(t), rel=1e-9)
    assert two_sided_p(-t, 2) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-9)
    assert students_t(1 - two_sided_p(t, 5) / 2, 5) == pytest.approx(t, rel=1e-3)


@pytest.mark.parametrize(("documents", "error"), [(4, 0.035), (5, 0.015), (401, 2e-10)])
def test_the_expanded_tail_is_that_of_students_t(documents: int, error: float):
    """In the normal law: its quantile there is Student's, by an expansion, times the bias of a standard error."""
    from scipy.special import ndtri

    expected = students_t(0.975, documents - 1) * math.sqrt(documents / (documents - 1))
    assert -ndtri(expanded_tail(documents)) == pytest.approx(expected, abs=error)


@pytest.mark.parametrize(("documents", "windows"), [(7, 4), (30, 3)])
def test_coverage_on_clustered_data(documents: int, windows: int):
    """Documents differ by more than their windows do; the mean of the law is 2."""
    rng = np.random.default_rng(1)
    hits, simulations = 0, 200
    for _ in range(simulations):
        of_document = rng.normal(2.0, 1.0, size=documents)
        records = [
            (f"d{d}", [rng.normal(of_document[d], 0.5), 1.0])
            for d in range(documents)
            for _ in range(windows)
        ]
        row = estimate(statistic(records))
        hits += row.ci_low <= 2.0 <= row.ci_high
    assert 0.88 <= hits / simulations <= 0.99


@pytest.mark.parametrize("documents", [2, 4, 16])
@pytest.mark.parametrize("skewed", [False, True])
def test_few_documents_cover_as_many_do(documents: int, skewed: bool):
    """95 % where documents differ normally; of a skewed law at least 87 %. The note says what is supposed."""
    rng = np.random.default_rng(3)
    draw = (lambda: rng.gamma(4.0) / 2) if skewed else (lambda: rng.normal(2.0))
    hits, simulations = 0, 600
    for _ in range(simulations):
        row = estimate(statistic([(f"d{i}", [draw(), 1.0]) for i in range(documents)]))
        hits += row.ci_low <= 2.0 <= row.ci_high
    assert hits / simulations >= (0.87 if skewed else 0.93)
    assert hits / simulations <= 0.985
    assert bool(few_documents(documents, "documents")) == (documents < 8)


@pytest.mark.parametrize("documents", [2, 3, 4, 8])
@pytest.mark.parametrize("noise", [0.1, 1.0])
def test_of_many_places_none_is_clear_by_chance(documents: int, noise: float):
    """A model that uses nothing, at twenty distances: one by one, a third of such runs had a clear benefit."""
    rng, claims, simulations = np.random.default_rng(5), 0, 400
    for _ in range(simulations):
        drawn = noise * rng.normal(size=(20, documents))
        halves = students_t(0.975, documents - 1) * drawn.std(axis=1, ddof=1) / math.sqrt(documents)
        pairs = zip(drawn.mean(axis=1), halves, strict=True)
        rows = [replace(ROW, value=v, ci_low=v - half, documents=documents) for v, half in pairs]
        claims += bool(clearly_beyond(rows, 0.0))
    assert claims / simulations <= 0.025 + 3 * math.sqrt(0.025 / simulations)
    sure = replace(ROW, value=1.0, ci_low=1.0, documents=documents)
    assert clearly_beyond([*rows, sure], 0.9)[-1] is sure
    assert clearly_beyond([replace(sure, ci_low=None)], 0.5) == []


def test_documents_that_have_nothing_of_it_are_no_evidence():
    """Nor do they widen the bootstrap: key tokens are in three of four documents."""
    some = [("a", [6.0, 4.0]), ("b", [1.0, 1.0]), ("c", [5.0, 4.0])]
    alone = estimate(statistic(some))
    assert estimate(statistic([*some, ("d", [0.0, 0.0])])) == alone
    assert alone.documents == 3
    more = statistic([*some, ("d", [1.0, 2.0])])
    apart = estimate_difference(more, statistic([*some, ("d", [0.0, 0.0])]))
    assert apart.documents == 4
    assert estimate(more).documents == 4


@pytest.mark.parametrize("documents", [3, 6, 8, 20])
def test_a_difference_is_tested_as_its_interval_says(documents: int):
    rng, excluded = np.random.default_rng(4), 0
    for _ in range(60):
        drawn = rng.gamma(1.0, size=documents) - 0.4
        pairs = [[(f"d{i}", [each, 1.0]) for i, each in enumerate(side)] for side in (drawn, 0 * drawn)]
        [row] = holm([estimate_difference(*map(statistic, pairs))])
        excluded += (outside := row.ci_low > 0 or row.ci_high < 0)
        assert (row.p_holm < 0.05) == outside
    assert 0 < excluded < 60


def test_a_share_stays_one():
    row = replace(ROW, unit="share")
    found = estimate(Statistic.of(row, [("a", [9, 10]), ("b", [10, 10]), ("c", [6, 10])]))
    assert (found.value, found.ci_high) == (pytest.approx(25 / 30), 1.0)
    # A difference of shares may be negative.
    less = Statistic.of(row, [("a", [9, 10]), ("b", [8, 10]), ("c", [7, 10])])
    apart = estimate_difference(Statistic.of(row, [("a", [9, 10]), ("b", [10, 10]), ("c", [6, 10])]), less)
    assert 0 < apart.value < 1
    assert apart.ci_low < 0


SIGNED = {
    "benefit", "benefit_a", "benefit_b", "benefit_change", "benefit_inside", "benefit_kept", "benefit_nearby",
    "excess", "shift", "used_level",
}  # fmt: skip
"""Metrics that may lie below 0."""
GOLDEN = Path(__file__).parents[1] / "golden" / "runs"


def test_of_every_number_with_an_interval_it_is_known_whether_it_can_lie_below_0():
    rows = [row for file in GOLDEN.glob("*.json") for row in json.loads(file.read_text())["rows"]]
    found = {row["metric"] for row in rows if "ci_low" in row and row.get("unit") not in ("share", "tokens")}
    assert found <= SIGNED | statistics._POSITIVE
    assert "jeffreys" in found


@pytest.mark.parametrize(
    ("metric", "least"),
    [("perplexity", 1), ("longppl", 1), *((metric, 0) for metric in ("loss", "gold_loss", "jeffreys", "kl"))],
)
def test_the_interval_of_two_documents_stays_where_the_number_can_be(metric: str, least: float):
    row = replace(ROW, metric=metric)
    of = (lambda totals: np.exp(ratio(totals))) if least else ratio
    two = [("a", [0.1, 1]), ("b", [2.5, 1])]
    found = estimate(Statistic.of(row, two, estimator=of))
    assert found.ci_low == least
    # Student's alone would reach below.
    assert found.value - students_t(0.975, 1) * found.stderr < least


def test_paired_interval_on_correlated_data():
    """The difference is 0.3 for every document but for a little noise, the documents differ by 1."""
    rng = np.random.default_rng(2)
    hits, widths, unpaired = 0, [], []
    for _ in range(100):
        common = rng.normal(0.0, 1.0, size=20)
        a = statistic([(f"d{i}", [x + 0.3 + rng.normal(0, 0.1), 1]) for i, x in enumerate(common)])
        b = statistic([(f"d{i}", [x, 1]) for i, x in enumerate(common)])
        row = estimate_difference(a, b)
        hits += row.ci_low <= 0.3 <= row.ci_high
        widths.append(row.ci_high - row.ci_low)
        alone = estimate(a)
        unpaired.append(alone.ci_high - alone.ci_low)
    assert 0.88 <= hits / 100 <= 1.0
    assert np.mean(widths) == pytest.approx(2 * 2.09 * 0.1 / math.sqrt(20), rel=0.15)
    assert np.mean(widths) < 0.2 * np.mean(unpaired)


@pytest.mark.parametrize("documents", [2, 4, 20])
@pytest.mark.parametrize("metric", ["perplexity", "longppl"])
def test_the_interval_of_a_perplexity_is_that_of_its_loss(metric: str, documents: int):
    exponential = lambda totals: np.exp(ratio(totals))  # noqa: E731

    def both(*losses: float) -> list[Row]:
        records = [(f"d{i}", [loss, 1.0]) for i, loss in enumerate(losses)]
        return [
            estimate(Statistic.of(replace(ROW, metric="loss"), records)),
            estimate(Statistic.of(replace(ROW, metric=metric), records, estimator=exponential)),
        ]

    plain, powered = both(*map(float, range(1, documents + 1)))
    ends = [(row.value, row.ci_low, row.ci_high) for row in (plain, powered)]
    assert ends[1] == pytest.approx([math.exp(each) for each in ends[0]])
    _, finite = both(100.0, 300.0)
    assert 1.0 == finite.ci_low < finite.value < finite.ci_high < math.inf


def test_a_difference_of_undefined_numbers_is_undefined():
    nothing = statistic([("a", [0, 0]), ("b", [0, 0])])
    something = statistic([("a", [1, 1]), ("b", [2, 1])])
    for pair in ((nothing, nothing), (nothing, something), (something, nothing)):
        assert estimate_difference(*pair).value is None


@pytest.mark.parametrize("documents", [1, 7, 104, 300])
def test_resamples_are_one_draw_of_multinomial_counts(monkeypatch: pytest.MonkeyPatch, documents: int):
    """As NumPy draws them at once; a product in parts gives the same."""
    totals = np.random.default_rng(0).normal(size=(documents, 2)) ** 2 + 1
    seen = []
    statistic = Statistic(
        Row(model="", task="", metric="", value=None),
        tuple(map(str, range(documents))),
        totals,
        lambda sums: seen.append(sums) or ratio(sums),
    )
    drawn = np.random.default_rng(statistics.SEED).multinomial(
        documents, np.full(documents, 1 / documents), size=statistics.RESAMPLES
    )
    estimate(statistic)
    np.testing.assert_array_equal(seen[0], np.concatenate([np.ones((1, documents)), drawn]) @ totals)
    monkeypatch.setattr(statistics, "_AT_ONCE", 1000)
    estimate(statistic)
    np.testing.assert_allclose(seen[1], seen[0], rtol=1e-14)
