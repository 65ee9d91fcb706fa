"""Does a metric correlate with a score over models? Pearson and Spearman with intervals, and what n allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.measure.statistics import students_t
from lengthwise.results import Row
from lengthwise.runs import read_results_of

RESAMPLES = 2000
_SEED = 20250713
_MOST_UNDEFINED = 0.05
ENOUGH = 10
"""Models from which on an interval by bootstrap is worth printing without a warning."""


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """One coefficient with its 95 % percentile interval by bootstrap over models; None where undefined."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class Correlation:
    """The correlation of a metric and a score over `n` models."""

    n: int
    pearson: Coefficient
    spearman: Coefficient
    sentence: str
    """What may be said with this many models."""
    left_out: tuple[str, ...] = ()
    """Models that have only one of the two numbers."""


def correlate(x: Sequence[float], y: Sequence[float]) -> Correlation:
    """Pearson's and Spearman's correlation of pairs (one pair a model), resampling models.

    Raises:
        UsageError: not as many of one as of the other, or a number that is not finite.
    """
    if len(x) != len(y):
        raise UsageError(f"{len(x)} values of one and {len(y)} of the other", expected="one pair a model")
    pairs = np.array([x, y], dtype=np.float64).reshape(2, -1)
    if not np.isfinite(pairs).all():
        raise UsageError("a value is NaN or infinite", expected="finite values")
    n = pairs.shape[1]
    pearson = _coefficient(pairs)
    spearman = rank_correlation(x, y)
    constant = (
        [name for name, line in zip(("metric", "score"), pairs, strict=True) if np.ptp(line) == 0]
        if n
        else []
    )
    return Correlation(
        n=n, pearson=pearson, spearman=spearman, sentence=_sentence(n, pearson, spearman, constant)
    )


def rank_correlation(x: Sequence[float], y: Sequence[float], *, fewest: int = 2) -> Coefficient:
    """Spearman's rho of pairs (ties share their mean rank), resampling pairs; no interval for fewer than `fewest`."""
    from scipy.stats import rankdata

    found = _coefficient(
        np.array([x, y], dtype=np.float64).reshape(2, -1), of=lambda pairs: rankdata(pairs, axis=-1)
    )
    return found if len(x) >= fewest else Coefficient(value=found.value)


def correlate_runs(
    paths: Sequence[Path], metric: str, score: str
) -> tuple[list[tuple[str, float, float]], Correlation]:
    """`correlate_rows` of the rows in run folders; the runs of one model are pooled by its name.

    Raises:
        UsageError: as `correlate_rows`; a folder without results.
    """
    runs: dict[str, list[Row]] = {}
    for path in paths:
        results = read_results_of(named_path(path, what="the run"))
        adapter = results.config.get("adapter")
        name = f"{results.model_name} with {adapter}" if adapter else results.model_name
        runs.setdefault(name, []).extend(results.rows)
    return correlate_rows(runs, metric, score)


def correlate_rows(
    runs: Mapping[str, Sequence[Row]], metric: str, score: str
) -> tuple[list[tuple[str, float, float]], Correlation]:
    """Correlate two numbers of several models.

    Args:
        runs: model -> all of its rows, from any number of runs.
        metric: TASK/METRIC, TASK/METRIC@LENGTH or METRIC, which must name one number of each model.
        score: the same of the other number.

    Returns:
        (model, metric's value, score's value) of each model that has both, and their correlation.

    Raises:
        UsageError: a name that no model has, or that names several numbers of one model.
    """
    found, left_out = [], []
    for model, rows in runs.items():
        one, other = (_pick(model, rows, spec) for spec in (metric, score))
        if one is not None and other is not None:
            found.append((model, one, other))
        elif one is not None or other is not None:
            left_out.append(model)
    if not found:
        known = {_spec(row) for rows in runs.values() for row in rows if _is_plain(row)}
        raise UsageError(
            f"no model has both {metric!r} and {score!r}",
            expected=f"{nearest(metric, known)}; {nearest(score, known)}",
        )
    correlation = correlate([one for _, one, _ in found], [other for *_, other in found])
    return found, replace(correlation, left_out=tuple(left_out))


def _pick(model: str, rows: Sequence[Row], spec: str) -> float | None:
    rest, _, length = spec.partition("@")
    task, _, metric = rest.rpartition("/")
    if length and not length.isdigit():
        raise UsageError(f"{spec!r} has no length after @", expected="TASK/METRIC@LENGTH")
    values = [
        row
        for row in rows
        if _is_plain(row)
        and row.metric == metric
        and (not task or row.task == task)
        and (not length or row.length == int(length))
        and row.value is not None
    ]
    if len(values) > 1:
        specs = sorted({_spec(row) for row in values})
        raise UsageError(
            f"{spec!r} names {len(values)} numbers of {model}",
            expected=f"one of: {', '.join(specs)}"
            if len(specs) > 1
            else f"one run of each model that has {specs[0]}",
        )
    return values[0].value if values else None


def _is_plain(row: Row) -> bool:
    detail = (
        row.position,
        row.context_other,
        row.distance,
        row.kept,
        row.depth,
        row.bucket,
        row.reference,
        row.at_least,
    )
    return all(part is None for part in detail)


def _spec(row: Row) -> str:
    return f"{row.task}/{row.metric}" + (f"@{row.length}" if row.length is not None else "")


def _coefficient(
    pairs: NDArray[np.float64],
    *,
    of: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda pairs: pairs,
) -> Coefficient:
    """Pearson's correlation of `of(pairs)`, pairs [2, ..., n], with the percentile interval of 2000 resamples."""
    n = pairs.shape[1]
    value = float(_pearson(of(pairs[:, None, :]))[0]) if n > 1 else math.nan
    if not math.isfinite(value):
        return Coefficient(value=None)
    drawn = pairs[:, np.random.default_rng(_SEED).integers(n, size=(RESAMPLES, n))]
    resampled = _pearson(of(drawn))
    defined = resampled[np.isfinite(resampled)]
    if len(defined) < (1 - _MOST_UNDEFINED) * RESAMPLES:
        return Coefficient(value=value)
    low, high = np.quantile(defined, [0.025, 0.975])
    return Coefficient(value=value, low=float(low), high=float(high))


def _pearson(pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs [2, R, n] -> [R]; NaN where one side does not vary."""
    varies = (pairs.max(axis=-1) > pairs.min(axis=-1)).all(axis=0)
    x, y = pairs - pairs.mean(axis=-1, keepdims=True)
    spread = np.sqrt((x * x).sum(axis=-1) * (y * y).sum(axis=-1))
    return np.divide((x * y).sum(axis=-1), spread, out=np.full(len(spread), np.nan), where=varies)


def _sentence(n: int, pearson: Coefficient, spearman: Coefficient, constant: Sequence[str]) -> str:
    if n < 3:
        return "2 models say nothing: any two points lie on a line." if n == 2 else "One model says nothing."
    if pearson.value is None or spearman.value is None:
        same = "Neither varies" if len(constant) == 2 else f"The {constant[0]} does not vary"
        return f"{same} over these models, so there is no correlation."
    t = students_t(0.975, n - 2)
    chance = t / math.sqrt(n - 2 + t * t)
    beginning = f"With {n} models, unrelated numbers correlate by {chance:.2f} or more in 5 % of cases"
    if abs(pearson.value) < chance:
        return f"{beginning}, and these by {abs(pearson.value):.2f} (Pearson): nothing can be said."
    if n < ENOUGH:
        said = f"{beginning}; {n} models are too few for more than a hint, and the intervals are rough."
    else:
        said = f"{beginning}; these do by {abs(pearson.value):.2f} (Pearson)."
    if abs(spearman.value) < chance:
        said += f" Their ranks do by {abs(spearman.value):.2f} only: one or two models may decide it."
    return said
