"""Numbers with intervals: sums by document, a ratio of sums, a bootstrap over documents.

Every number is an estimate from totals, `estimator(total over documents)`, and is divided once, at the end.
Windows of one document are not independent of each other; documents are taken to be. So whole documents are
resampled, 2000 times as many as there are, with replacement, and each resample gives an estimate.

The interval is the percentile interval at 95 %, its tail probability expanded for few documents to
Phi(-t * sqrt(D / (D - 1))), with t the 97.5 % quantile of Student's t at D - 1 degrees of freedom
(Hesterberg 2015, "What teachers should know about the bootstrap", section 5.2): the plain percentile
interval of 7 documents covers about 87 %. It cannot leave the range of the documents, which holds a median in
1 - 2^(1 - D) of cases. So it is widened to Student's, value +- t * standard error, where that is wider (not for a
number of tokens, which lies on a grid). That of a perplexity is exp(its loss's). `checks/lab/real_documents.py`
counts how often it holds the truth.

The standard error is the standard deviation over the resamples times sqrt(D / (D - 1)), which for a mean of D equal
documents is the usual s / sqrt(D).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lengthwise.results import Row

RESAMPLES = 2000
SEED = 20250713
MOST_UNDEFINED = 0.05
_AT_ONCE = 2**25
"""Weights in a product: 256 MB."""
_ROUNDING = 1e-12
"""Of two numbers: a difference below this is that of sums in another order."""
_GREATEST = 700.0
"""Of a number whose exponential is finite."""
_ANY = (-math.inf, math.inf)
_POSITIVE = {
    "loss", "loss_a", "loss_b", "loss_best_temperature", "loss_key", "gold_loss", "recent_loss", "unigram_loss",
    "sce", "entropy", "jeffreys", "js", "kl", "inverse_temperature", "perplexity", "longppl",
    # Means of absolute differences.
    "difference", "before", "after", "prefix_cache",
}  # fmt: skip
"""Metrics other than shares that are not below 0 by nature: Student's interval around one may reach beyond."""
_EXPONENTIALS = ("perplexity", "longppl")
"""Of a loss, which varies about normally; their intervals are exp(the loss's)."""

Estimator = Callable[["NDArray[np.float64]"], "NDArray[np.float64]"]


def ratio(totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum / count of totals [R, 2]; NaN where the count is 0."""
    counts = totals[:, 1]
    return np.divide(totals[:, 0], counts, out=np.full(len(totals), np.nan), where=counts > 0)


def mean_of_ratios(tree: Sequence[Any]) -> Estimator:
    """The mean over the branches of `tree` of their means; a branch without samples is left out.

    Totals are [R, 2 C]: of each cell its sum and its count. A tree is cells (integers) that are pooled, or a list of
    trees whose means are averaged.
    """

    def value(totals: NDArray[np.float64]) -> NDArray[np.float64]:
        if isinstance(tree[0], int):
            return ratio(np.sum([totals[:, 2 * cell : 2 * cell + 2] for cell in tree], axis=0))
        parts = np.stack([mean_of_ratios(branch)(totals) for branch in tree])
        there = np.isfinite(parts)
        return ratio(np.stack([np.where(there, parts, 0.0).sum(axis=0), there.sum(axis=0)], axis=1))

    return value


@dataclass(frozen=True)
class Statistic:
    """One number before it is a row: which one, and the totals of each document that it is made from."""

    row: Row
    """The row without value and interval, but with `n`."""
    documents: tuple[str, ...]
    totals: NDArray[np.float64]
    """[D, C], in the order of `documents`."""
    estimator: Estimator = ratio
    """Totals of R samples [R, C] -> R values, NaN where the value is undefined."""

    @classmethod
    def of(
        cls, row: Row, records: Iterable[tuple[str, Sequence[float]]], *, estimator: Estimator = ratio
    ) -> Statistic:
        """Add up `(document, totals)` records by document."""
        by_document: dict[str, NDArray[np.float64]] = {}
        for document, totals in records:
            by_document[document] = by_document.get(document, 0.0) + np.asarray(totals, dtype=np.float64)
        documents = tuple(sorted(by_document))
        return cls(row, documents, np.array([by_document[name] for name in documents]), estimator)


def estimate(statistic: Statistic) -> Row:
    """The row with its value, standard error and 95 % interval.

    With a single document there is no interval. Nor is there one where the number is undefined in more than
    5 % of the resamples (a bin that few documents reach); else it is over the documents that have any of what is
    counted. Where all documents are alike the standard error is exactly 0, whatever the sums were rounded to.
    """
    found = _estimates(statistic)
    row = _row(statistic, found, rounding=_ROUNDING * abs(found[0]), within=_range(statistic))
    if row.ci_low is None:
        return row
    if not (counted := np.any(statistic.totals, axis=1)).all():
        return estimate(_only(statistic, counted))
    if row.metric not in _EXPONENTIALS:
        return row
    loss = _row(statistic, np.log(found), rounding=_ROUNDING * abs(np.log(found[0])), within=(0.0, math.inf))
    assert loss.ci_low is not None
    assert loss.ci_high is not None
    return replace(row, ci_low=math.exp(loss.ci_low), ci_high=math.exp(min(loss.ci_high, _GREATEST)))


def estimate_difference(minuend: Statistic, subtrahend: Statistic) -> Row:
    """The row of the minuend, with its difference and a paired interval: both are resampled with the same documents.

    A difference within the rounding of the two sums is 0.
    """
    assert minuend.documents == subtrahend.documents
    one, other = _estimates(minuend), _estimates(subtrahend)
    rounding, difference = _ROUNDING * max(abs(one[0]), abs(other[0])), one - other
    if abs(difference[0]) <= rounding:
        difference[0] = 0.0
    row = _row(minuend, difference, rounding=rounding, within=_ANY)
    counted = np.any(minuend.totals, axis=1) | np.any(subtrahend.totals, axis=1)
    if row.ci_low is None or counted.all():
        return row
    return estimate_difference(_only(minuend, counted), _only(subtrahend, counted))


def _only(statistic: Statistic, counted: NDArray[np.bool_]) -> Statistic:
    """Of these documents. What others have nothing of, they know nothing about: they make no degrees of freedom."""
    names = tuple(np.array(statistic.documents, dtype=object)[counted])
    return replace(statistic, documents=names, totals=statistic.totals[counted])


@lru_cache(maxsize=2)
def _weights(documents: int) -> NDArray[np.uint8]:
    """How often each document is in the text, and in each resample: [1 + RESAMPLES, D]. The same for the same D."""
    rng, shares = np.random.default_rng(SEED), np.full(documents, 1 / documents)
    weights = np.ones((1 + RESAMPLES, documents), dtype=np.uint8)
    for row in weights[1:]:
        drawn = rng.multinomial(documents, shares)
        # Among more than 255 documents the chance that one is drawn so often is below 1e-500.
        assert drawn.max() <= 255
        row[:] = drawn
    return weights


def _estimates(statistic: Statistic) -> NDArray[np.float64]:
    """The estimate, then that of each resample: [1 + RESAMPLES]."""
    weights = _weights(len(statistic.documents))
    # The product makes float64 of the weights; of more documents than 16,000 a part at a time.
    rows = max(1, _AT_ONCE // len(statistic.documents))
    parts = [weights[start : start + rows] @ statistic.totals for start in range(0, len(weights), rows)]
    return statistic.estimator(np.concatenate(parts))


def _range(statistic: Statistic) -> tuple[float, float]:
    """Where a number lies by nature. A share is a count of some among a count of all, in every document."""
    if statistic.row.unit != "share" or statistic.totals.shape[1] % 2:
        return (0.0, math.inf) if statistic.row.metric in _POSITIVE else _ANY
    some, all_of_them = statistic.totals[:, ::2], statistic.totals[:, 1::2]
    return (0.0, 1.0) if ((some >= 0) & (some <= all_of_them)).all() else _ANY


def _row(
    statistic: Statistic, estimates: NDArray[np.float64], *, rounding: float, within: tuple[float, float]
) -> Row:
    value, resampled = float(estimates[0]), estimates[1:]
    documents = len(statistic.documents)
    row = replace(statistic.row, documents=documents)
    if not math.isfinite(value):
        return row
    row = replace(row, value=value)
    resampled = np.where(abs(resampled - value) <= rounding, value, resampled)
    defined = resampled[np.isfinite(resampled)]
    if documents < 2 or len(defined) < (1 - MOST_UNDEFINED) * RESAMPLES:
        return row
    tail = expanded_tail(documents)
    low, high = np.quantile(defined, [tail, 1 - tail])
    # The standard deviation of equal numbers can round to more than 0.
    deviation = float(defined.std(ddof=1)) if defined.min() < defined.max() else 0.0
    stderr = deviation * math.sqrt(documents / (documents - 1))
    if row.unit != "tokens":
        half = students_t(0.975, documents - 1) * stderr
        low, high = min(low, value - half), max(high, value + half)
        low, high = max(low, within[0]), min(high, within[1])
    return replace(row, stderr=stderr, ci_low=float(low), ci_high=float(high))


def expanded_tail(documents: int) -> float:
    """The tail probability of the expanded percentile interval (see the module's text)."""
    return math.erfc(_student(documents - 1) * math.sqrt(documents / (documents - 1)) / math.sqrt(2)) / 2


def _student(degrees: int) -> float:
    """97.5 % quantile of Student's t by its expansion in 1 / degrees around the normal one.

    Within 0.03 from 3 degrees on; below, the tail is under 1 / RESAMPLES whatever the error.
    """
    z = 1.959963984540054
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + (z**3 + z) / 4 / degrees + second / degrees**2 + third / degrees**3


def students_t(probability: float, degrees: int) -> float:
    """The quantile of Student's t at this probability and so many degrees of freedom."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def two_sided_p(t: float, degrees: int) -> float:
    """P(|T| >= |t|) with T of Student's t at `degrees` degrees of freedom."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(t)))


def clearly_beyond(rows: Sequence[Row], level: float) -> list[Row]:
    """Rows whose value is above a level by more than noise at any of them gives: by Bonferroni, at 2.5 % for all.

    The interval of a row is for itself: of twenty rows of noise, every third time one lies above the level.
    """
    tail = 0.025 / max(1, len(rows))

    def low(row: Row) -> float:
        # As Student's interval widens; with many documents that is the normal one.
        degrees = (row.documents or 1000) - 1
        assert row.value is not None
        assert row.ci_low is not None
        return row.value - (row.value - row.ci_low) * students_t(1 - tail, degrees) / students_t(
            0.975, degrees
        )

    return [row for row in rows if row.value is not None and row.ci_low is not None and low(row) > level]


def few_documents(count: int, unit: str) -> list[str]:
    """What must be said of intervals over so few documents (or whatever `unit` is resampled); nothing from 8 on."""
    if count == 1:
        return [f"No intervals: they are over {unit}, and there is one of them."]
    if not 1 < count < 8:
        return []
    return [
        f"The intervals are over {count} {unit} only: they are wide, and suppose that {unit} differ about normally."
    ]


def equal_bins(low: int, high: int, count: int) -> list[int]:
    """Edges of `count` bins of nearly equal size over the integers low .. high - 1 (fewer if these are)."""
    count = min(count, high - low)
    return [low + (high - low) * index // count for index in range(count + 1)]
