"""Does a metric correlate with a score over models? Pearson and Spearman with intervals, and what n allows."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lengthwise.errors import UsageError, nearest
from lengthwise.files import named_path
from lengthwise.measure.statistics import MOST_UNDEFINED, RESAMPLES, SEED, students_t
from lengthwise.results import Results, Row, read_results

_ENOUGH = 10
"""Models from which on an interval by bootstrap is worth printing without a warning."""


def correlate(x: Sequence[float], y: Sequence[float]) -> Results:
    """Pearson's and Spearman's correlation of pairs (one pair a model), with 95 % intervals by resampling models.

    Returns:
        Rows `pearson` and `spearman` (ties share their mean rank), their `n` models, and a note: what may be said
        with this many models.

    Raises:
        UsageError: not as many of one as of the other, or a number that is not finite.
    """
    if len(x) != len(y):
        raise UsageError(f"{len(x)} values of one and {len(y)} of the other", expected="one pair a model")
    pairs = np.array([x, y], dtype=np.float64).reshape(2, -1)
    if not np.isfinite(pairs).all():
        raise UsageError("a value is NaN or infinite", expected="finite values")
    drawn = pairs[:, np.random.default_rng(SEED).integers(max(1, len(x)), size=(RESAMPLES, len(x)))]
    rows = [_row(metric, pairs, drawn) for metric in ("pearson", "spearman")]
    note = _note(pairs, *(row.value for row in rows))
    return Results(kind="correlate", model_name="metric and score", config={}, rows=rows, notes=[note])


def correlate_runs(paths: Sequence[Path | str], metric: str, score: str) -> Results:
    """Correlate two numbers of several models.

    Args:
        paths: run folders; those of one model are pooled by its name.
        metric: TASK/METRIC, TASK/METRIC@LENGTH or METRIC, which must name one number of each model.
        score: the same of the other number.

    Returns:
        The two rows of each model that has both, then those of `correlate`.

    Raises:
        UsageError: a name that no model has, or that names several numbers of one model; a folder without results.
    """
    runs: dict[str, list[Row]] = {}
    for path in paths:
        results = read_results(named_path(path, what="the run"))
        adapter = results.config.get("adapter")
        name = f"{results.model_name} with {adapter}" if adapter else results.model_name
        runs.setdefault(name, []).extend(results.rows)
    wanted = (metric, score)
    found = {
        model: [row for name in wanted for row in _named(model, rows, name)] for model, rows in runs.items()
    }
    pairs = {model: rows for model, rows in found.items() if len(rows) == 2}
    if not pairs:
        known = {_name(row) for rows in runs.values() for row in rows if _is_plain(row)}
        raise UsageError(
            f"no model has both {metric!r} and {score!r}",
            expected=f"{nearest(metric, known)}; {nearest(score, known)}",
        )
    results = correlate(*([rows[side].value or 0.0 for rows in pairs.values()] for side in (0, 1)))
    left_out = [model for model, rows in found.items() if len(rows) == 1]
    if left_out:
        results.notes.append(f"Left out, with only one of the two numbers: {', '.join(left_out)}.")
    plain = [replace(row, model=model) for model, rows in pairs.items() for row in rows]
    name = f"{metric} and {score}"
    both = [replace(row, model=name) for row in results.rows]
    return replace(results, model_name=name, rows=[*plain, *both])


def _named(model: str, rows: Sequence[Row], name: str) -> list[Row]:
    """The row of that name, if there is one."""
    rest, _, length = name.partition("@")
    task, _, metric = rest.rpartition("/")
    if length and not length.isdigit():
        raise UsageError(f"{name!r} has no length after @", expected="TASK/METRIC@LENGTH")
    found = [
        row
        for row in rows
        if _is_plain(row) and row.value is not None and row.metric == metric
        if task in ("", row.task) and length in ("", str(row.length))
    ]
    if len(found) > 1:
        names = ", ".join(sorted({_name(row) for row in found}))
        raise UsageError(
            f"{name!r} names {len(found)} numbers of {model}",
            expected=f"one of {names}, and one run of each model that has it",
        )
    return found


def _is_plain(row: Row) -> bool:
    return row.is_headline and row.distance is row.kept is row.at_least is None


def _name(row: Row) -> str:
    return f"{row.task}/{row.metric}" + (f"@{row.length}" if row.length is not None else "")


def _row(metric: str, pairs: NDArray[np.float64], drawn: NDArray[np.float64]) -> Row:
    """The coefficient of pairs [2, n], with the percentile interval of the resamples `drawn` [2, R, n]."""
    n = pairs.shape[1]
    row = Row(model="", task="correlation", metric=metric, value=None, unit="ratio", n=n)
    value = _coefficient(metric, pairs) if n > 1 else math.nan
    if not np.isfinite(value):
        return row
    resampled = _coefficient(metric, drawn)
    defined = resampled[np.isfinite(resampled)]
    if len(defined) < (1 - MOST_UNDEFINED) * RESAMPLES:
        return replace(row, value=float(value))
    low, high = np.quantile(defined, [0.025, 0.975])
    return replace(row, value=float(value), ci_low=float(low), ci_high=float(high))


def _coefficient(metric: str, pairs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pairs [2, ..., n] -> [...]; NaN where one side does not vary."""
    from scipy.stats import pearsonr, rankdata

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pearsonr(*(pairs if metric == "pearson" else rankdata(pairs, axis=-1)), axis=-1).statistic


def _note(pairs: NDArray[np.float64], pearson: float | None, spearman: float | None) -> str:
    """What may be said of the coefficients of n models."""
    n = pairs.shape[1]
    if n < 3:
        return "2 models say nothing: any two points lie on a line." if n == 2 else "One model says nothing."
    if pearson is None or spearman is None:
        return "The metric or the score does not vary over these models, so there is no correlation."
    t = students_t(0.975, n - 2)
    chance = t / math.sqrt(n - 2 + t * t)
    beginning = f"With {n} models, unrelated numbers correlate by {chance:.2f} or more in 5 % of cases"
    if abs(pearson) < chance:
        return f"{beginning}, and these by {abs(pearson):.2f} (Pearson): nothing can be said."
    found = f"these do by {abs(pearson):.2f} (Pearson)."
    if n < _ENOUGH:
        found = f"{n} models are too few for more than a hint, and the intervals are rough."
    if abs(spearman) < chance:
        found += f" Their ranks do by {abs(spearman):.2f} only: one or two models may decide it."
    return f"{beginning}; {found}"
