"""Every point of every curve is drawn at the position of its row; a bin is drawn at its middle."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

import matplotlib.figure
import pytest

from lengthwise.report import drawing
from lengthwise.report.figures import FIGURES
from lengthwise.report.heatmaps import misalignment_matrix
from lengthwise.results import Row
from tests.report import made_rows as made


def _difference_rows() -> list[Row]:
    rows = [made.estimate(0.05, 0, model="m", task="difference", metric="tolerance")]
    for length, edges in ((128, (0, 64, 96, 128)), (256, (0, 64, 96, 128, 192, 256))):
        common = {"model": "m", "task": "difference", "length": length}
        rows += [
            made.estimate(
                length / 1e3 + end / 1e6,
                1e-3,
                metric="difference",
                position=begin,
                position_end=end,
                **common,
            )
            for begin, end in pairwise(edges)
        ]
        rows += [
            made.estimate(value + length / 1e3, 0.1, metric=metric, distance=length // 2, **common)
            for metric, value in (
                ("benefit_a", 2),
                ("benefit_b", 1),
                ("benefit_change", -1),
                ("benefit_kept", 0.5),
            )
        ]
    return rows


ROWS = {
    "misalignment": made.misalignment_rows(),
    "perplexity": made.perplexity_rows(),
    "limit": made.limit_rows(),
    "difference": _difference_rows(),
}
CURVES = [
    (task, draw) for task, draws in FIGURES.items() for draw in draws if draw is not misalignment_matrix
]


def place(row: Row) -> float:
    """The x value of a row: the middle of its bin, its distance, its count or its length."""
    if row.position is not None and row.position_end is not None:
        return fmean(range(row.position, row.position_end))
    return next(each for each in (row.distance, row.kept, row.length, -1) if each is not None)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[matplotlib.figure.Figure]:
    """The figures as they are when they become pictures."""
    found, finish = [], drawing.picture

    def kept(figure, **about):
        found.append(figure)
        return finish(figure, **about)

    monkeypatch.setattr(drawing, "picture", kept)
    return found


def points(figures: Sequence[matplotlib.figure.Figure]) -> set[tuple[float, float]]:
    """(x, y) of every point of every curve; lines without a label are levels and intervals."""
    lines = [line for figure in figures for axes in figure.axes for line in axes.lines]
    curves = [line for line in lines if not str(line.get_label()).startswith("_")]
    return {(float(x), float(y)) for line in curves for x, y in zip(*line.get_data(), strict=True)}


def test_every_task_with_figures_has_rows_here() -> None:
    assert list(ROWS) == list(FIGURES)


@pytest.mark.parametrize(("task", "draw"), CURVES, ids=[draw.__name__ for _, draw in CURVES])
def test_a_point_stands_at_the_place_of_its_row(task, draw, figures) -> None:
    rows = [row for row in ROWS[task] if row.value is not None and row.context_other is None]
    assert draw(rows) is not None
    drawn = points(figures)
    # What is drawn of a metric, whole numbers or bins, is drawn whole.
    kinds = {(row.metric, row.is_whole) for row in rows if (place(row), row.value) in drawn}
    assert kinds
    # Benefits at the greatest length: `benefits_by_distance` has a test of its own.
    others = [row for row in rows if row.metric.startswith("benefit_") and row.length != rows[-1].length]
    expected = [row for row in rows if (row.metric, row.is_whole) in kinds and row not in others]
    assert drawn == {(place(row), row.value) for row in expected}
    assert draw.__name__.endswith("by_position") <= any(not whole for _, whole in kinds)


def test_a_decoded_end_of_a_window_stands_at_the_windows_length(figures) -> None:
    [draw] = FIGURES["difference"]
    rows = [row for row in ROWS["difference"] if row.position is None or row.position_end == row.length]
    assert draw(rows) is not None
    bins = {(row.length, row.value) for row in rows if row.position is not None}
    assert bins <= points(figures)
