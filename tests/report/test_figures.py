"""Figures stand alone; every point of every curve is drawn at the position of its row, and a bin at its middle."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import Any

import matplotlib as mpl
import matplotlib.figure
import pytest

from lengthwise.report import drawing
from lengthwise.report.drawing import COLORS, Picture, curves_of
from lengthwise.report.figures import (
    FIGURES,
    jeffreys_by_position,
    limit_curves,
    loss_by_length,
    loss_by_position,
    misalignment_parts,
    training_curves,
)
from lengthwise.report.heatmaps import misalignment_matrix
from lengthwise.report.sentence import SAYS
from lengthwise.report.tables import questions
from lengthwise.results import Row
from tests.report import made_rows as made

SVG = "{http://www.w3.org/2000/svg}"


DRAWINGS: dict[str, Callable[[], Picture | None]] = {
    "parts": lambda: misalignment_parts(made.misalignment_rows()),
    "loss": lambda: loss_by_length(made.perplexity_rows()),
    "position": lambda: loss_by_position(made.perplexity_rows()),
    "position of two": lambda: loss_by_position(made.perplexity_rows() + made.perplexity_rows("b")),
    "jeffreys": lambda: jeffreys_by_position(made.misalignment_rows()),
    "matrix": lambda: misalignment_matrix(made.misalignment_rows()),
    "limit": lambda: limit_curves(made.limit_rows()),
    "limits": lambda: limit_curves(made.limit_rows() + made.limit_rows("b", sound=None)),
    "training": lambda: training_curves({"a": made.metrics_records(5), "b": made.metrics_records(60)}),
}


@pytest.fixture(scope="module")
def pictures() -> dict[str, Picture]:
    return {name: drawn(make()) for name, make in DRAWINGS.items()}


def drawn(picture: Picture | None) -> Picture:
    assert picture is not None
    return picture


@pytest.mark.parametrize("name", ["loss", "matrix", "training"])
def test_the_same_rows_give_the_same_bytes(
    pictures: dict[str, Picture], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Neither a reader's own style nor the random state of the process may show.
    monkeypatch.setitem(mpl.rcParams, "font.size", 20)
    monkeypatch.setitem(mpl.rcParams, "svg.hashsalt", "other")
    assert drawn(DRAWINGS[name]()).svg == pictures[name].svg


@pytest.mark.parametrize("name", DRAWINGS)
def test_a_picture_stands_alone(pictures: dict[str, Picture], name: str) -> None:
    picture = pictures[name]
    root = ET.fromstring(picture.svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    assert root.get("aria-label") == picture.alt
    assert len(picture.alt) > 40
    assert picture.caption
    references = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', picture.svg)
    targets = {one or other for one, other in references}
    ids = {element.get("id") for element in root.iter()} - {None}
    assert targets <= {f"#{each}" for each in ids}, "only things inside the picture are referred to"
    assert all(each.startswith(f"{picture.name}-") for each in ids if each)
    assert "<image" not in picture.svg
    assert "<date" not in picture.svg.lower()


def test_figures_and_answers_are_of_tasks_that_there_are() -> None:
    assert set(FIGURES) | set(SAYS) <= set(questions())


def test_nothing_to_draw() -> None:
    others = made.limit_rows()
    assert misalignment_parts(others) is None
    assert jeffreys_by_position(others) is None
    assert misalignment_matrix(others) is None
    assert loss_by_length(others) is None
    assert loss_by_position(others) is None
    assert limit_curves(made.perplexity_rows()) is None
    assert training_curves({"a": []}) is None


def test_the_words_say_where_the_curves_begin_and_end(pictures: dict[str, Picture]) -> None:
    picture = pictures["loss"]
    assert "context length (tokens)" in picture.alt
    assert "nats per token" in picture.alt
    assert "smollm2-135m: 3.200 at 256, 3.080 at 1024." in picture.alt


def test_a_limit_has_the_colour_of_its_curve_where_another_model_has_none(
    pictures: dict[str, Picture],
) -> None:
    first, second = made.limit_rows(), made.limit_rows("b", sound=None)
    without_used = [replace(row, value=None) if row.metric == "used_up_to" else row for row in first]
    with_both, without = (
        pictures["limits"].svg.lower(),
        drawn(limit_curves(without_used + second)).svg.lower(),
    )
    # The line of the first model is gone, not that of the second.
    assert without.count(COLORS[0].lower()) < with_both.count(COLORS[0].lower())
    assert without.count(COLORS[1].lower()) == with_both.count(COLORS[1].lower())


def test_matrix_extremes_in_words() -> None:
    rows = [
        Row(
            model="m",
            task="misalignment",
            metric="jeffreys",
            value=value,
            length=128,
            context=one,
            context_other=other,
        )
        for one, other, value in ((128, 64, 0.5), (128, 96, 0.25))
    ]
    picture = drawn(misalignment_matrix(rows))
    assert "from 0.2500 at 128 and 96 tokens to 0.5000 at 128 and 64 tokens" in picture.alt


@pytest.mark.parametrize(("models", "said"), [(4, ""), (5, "The first 12 of 15 are drawn.")])
def test_panels_that_are_left_out_are_counted(models: int, said: str) -> None:
    rows = [row for model in range(models) for row in made.misalignment_rows(f"m{model}")]
    caption = drawn(misalignment_matrix(rows)).caption
    assert caption.endswith(said)
    assert ("are drawn" in caption) == bool(said)


def test_training_curves_leave_out_what_was_not_logged() -> None:
    records = [{"step": 1, "cross_entropy": 3.0}, {"step": 2, "cross_entropy": float("nan")}]
    picture = drawn(training_curves({"plain": records}))
    assert "Cross entropy: plain: 3.000 at 1." in picture.alt
    assert "Jeffreys" not in picture.alt


def test_long_runs_are_smoothed() -> None:
    records: list[dict[str, Any]] = [
        {"step": step, "cross_entropy": float(step % 2)} for step in range(1, 101)
    ]
    assert "a: 1.000 at 1, 0.4000 at 100." in drawn(training_curves({"a": records})).alt


def test_a_model_has_one_colour_in_all_panels_and_all_models_are_in_the_legend() -> None:
    short = [row for row in made.perplexity_rows("a") if row.length == made.LENGTHS[0]]
    rows = [*short, *made.perplexity_rows("b"), *made.perplexity_rows("c")]
    curves = curves_of(rows[-1:], lambda row: row.length or 0, series=("a", "b", "c"))
    assert [curve.style for curve in curves] == [2]
    # The first panel has fewer models here than the second.
    two = [row for row in reversed(rows) if row.length != made.LENGTHS[-1]]
    svg = drawn(loss_by_position(two)).svg.lower()
    assert all(color.lower() in svg for color in COLORS[:3])


def _difference_rows() -> list[Row]:
    common: dict[str, object] = {"model": "m", "task": "difference"}
    rows = [made.estimate(0.05, 0, metric="tolerance", **common)]
    benefits = {"benefit_a": 2, "benefit_b": 1, "benefit_change": -1, "benefit_kept": 0.5}
    for length, edges in ((128, (0, 64, 96, 128)), (256, (0, 64, 96, 128, 192, 256))):
        common["length"] = length
        for begin, end in pairwise(edges):
            place = {"metric": "difference", "position": begin, "position_end": end}
            rows.append(made.estimate(length / 1e3 + end / 1e6, 1e-3, **place, **common))
        for metric, value in benefits.items():
            rows.append(
                made.estimate(value + length / 1e3, 0.1, metric=metric, distance=length // 2, **common)
            )
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


def ticks(figures: Sequence[matplotlib.figure.Figure]) -> list[list[float]]:
    """Those of each panel of the first figure."""
    return [list(axes.xaxis.get_major_locator()()) for axes in figures[0].axes]


def test_ticks_of_distances_are_four_times_apart(figures) -> None:
    assert limit_curves(made.limit_rows()) is not None
    # 16,320 is less than four times 8,192.
    assert ticks(figures)[1] == [128, 512, 2048, 8192]


@pytest.mark.parametrize(
    ("bins", "expected"),
    [(8, [31.5, 95.5, 159.5, 223.5, 287.5, 351.5, 479.5]), (9, [16, 64, 256])],
)
def test_more_than_eight_bins_have_ticks_at_powers_of_four(bins, expected, figures) -> None:
    [draw] = FIGURES["difference"]
    place = {"model": "m", "task": "difference", "metric": "difference", "length": 1024}
    edges = range(0, 64 * bins, 64)
    rows = [made.estimate(1.0, 0.1, position=edge, position_end=edge + 64, **place) for edge in edges]
    assert draw(rows) is not None
    assert ticks(figures)[0] == expected
