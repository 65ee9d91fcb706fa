"""Which rows make one curve: the same model, arm and seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

from lengthwise.report.drawing import Curve
from lengthwise.results import Row


def labelled(rows: Sequence[Row], label: str) -> list[Row]:
    """The same rows under another model name, to tell runs of one model apart."""
    return [replace(row, model=label) for row in rows]


def series_names(rows: Sequence[Row]) -> list[str]:
    """A name for each row's curve: its arm, or its model, or both where both vary."""
    several_models = len({row.model for row in rows}) > 1
    return [f"{row.model}, {row.arm}" if row.arm and several_models else row.arm or row.model for row in rows]


def curves_of(rows: Sequence[Row], x_of: Callable[[Row], float]) -> list[Curve]:
    """One curve for each series, in order of appearance, points sorted by x.

    Rows without a value are left out. Several seeds of one series become faint curves and their mean.
    """
    by_name: dict[str, dict[int | None, list[Row]]] = {}
    for row, name in zip(rows, series_names(rows), strict=True):
        if row.value is not None:
            by_name.setdefault(name, {}).setdefault(row.seed, []).append(row)
    curves: list[Curve] = []
    for style, (name, seeds) in enumerate(by_name.items()):
        of_seeds = [_curve(name, style, rows_of_seed, x_of) for rows_of_seed in seeds.values()]
        if len(of_seeds) == 1:
            curves += of_seeds
        else:
            curves += [replace(curve, faint=True, low=(), high=()) for curve in of_seeds]
            curves.append(_mean(f"{name} (mean of {len(of_seeds)} seeds)", of_seeds))
    return curves


def _curve(name: str, style: int, rows: list[Row], x_of: Callable[[Row], float]) -> Curve:
    points = sorted((x_of(row), row.value, row.ci_low, row.ci_high) for row in rows if row.value is not None)
    x, y, low, high = (list(column) for column in zip(*points, strict=True))
    return Curve(label=name, x=x, y=y, low=low, high=high, style=style)


def _mean(label: str, curves: list[Curve]) -> Curve:
    at: dict[float, list[float]] = {}
    for curve in curves:
        for x, y in zip(curve.x, curve.y, strict=True):
            at.setdefault(x, []).append(y)
    # A mean over fewer seeds at some x would bend the curve for no reason in the model.
    whole = sorted(x for x, values in at.items() if len(values) == len(curves))
    return Curve(label=label, x=whole, y=[fmean(at[x]) for x in whole], style=curves[0].style)
