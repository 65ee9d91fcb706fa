import re
from itertools import pairwise
from typing import Any

import pytest
from matplotlib.figure import Figure

from lengthwise.report.dark_pictures import DARK
from lengthwise.report.drawing import (
    NARROW,
    WIDTH,
    Curve,
    curve_picture,
    curves_of,
    doubling_axis,
    token_axis,
)  # fmt: skip
from lengthwise.report.heatmaps import score_by_depth
from lengthwise.report.tables import series_names
from lengthwise.results import Row


def row(length: int, value: float | None, **given: Any) -> Row:
    return Row(**{"model": "m", "task": "perplexity", "metric": "loss"} | given, length=length, value=value)


def by_length(found: Row) -> float:
    return found.length or 0


def test_names_tell_models_and_arms_apart() -> None:
    assert series_names([row(1, 1.0), row(2, 1.0)]) == ["m", "m"]
    assert series_names([row(1, 1.0, arm="a"), row(1, 1.0)]) == ["a", "m"]
    assert series_names([row(1, 1.0, arm="a"), row(1, 1.0, model="n", arm="a"), row(1, 1.0)]) == [
        "m, a",
        "n, a",
        "m",
    ]


def test_points_are_sorted_with_their_intervals_and_undefined_ones_left_out() -> None:
    rows = [row(512, 3.0), row(128, 2.0, ci_low=1.5, ci_high=2.5), row(256, None)]
    [curve] = curves_of(rows, by_length)
    assert curve.x == [128, 512]
    assert curve.y == [2.0, 3.0]
    assert curve.low == [1.5, None]
    assert curve.high == [2.5, None]


def test_seeds_become_faint_curves_and_their_mean() -> None:
    rows = [
        row(128, 1.0, arm="a", seed=0, ci_low=0.5, ci_high=1.5),
        row(256, 2.0, arm="a", seed=0),
        row(128, 3.0, arm="a", seed=1),
        row(128, 9.0, arm="b", seed=0),
    ]
    first, second, mean, other = curves_of(rows, by_length)
    assert (first.faint, second.faint, mean.faint, other.faint) == (True, True, False, False)
    assert list(first.low) == []
    assert mean.label == "a (mean of 2 seeds)"
    assert mean.x == [128], "256 has one seed only"
    assert mean.y == [2.0]
    assert [curve.style for curve in (first, second, mean, other)] == [0, 0, 0, 1]


def test_on_a_phone_panels_lie_below_one_another() -> None:
    curves = curves_of([row(128, 1.0), row(256, 2.0)], by_length)
    panels = {"left": curves, "right": curves}
    found = curve_picture(panels, name="p", title="t", across="a", up="u", caption="c")
    assert found is not None
    for svg, width, names in ((found.svg, WIDTH, "p-axes_"), (found.narrow, NARROW, "p-narrow-axes_")):
        across, down = map(float, re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)[0])
        assert across == pytest.approx(72 * width)
        # A panel is 2.7 inches high.
        assert (down > 2 * 2.7 * 72) == (width == NARROW)
        assert svg.count(f'id="{names}') == 2


@pytest.mark.parametrize(
    ("values", "apart", "ticks", "ends"),
    [
        ((64, 16, 16, 256), 4, [16, 64, 256], None),
        ((16, 63, 65, 259), 4, [16, 65], None),
        ((96, 96), 4, [96], (48, 192)),
    ],
)
def test_ticks_are_measured_values_that_are_apart(values, apart, ticks, ends) -> None:
    axes = Figure().add_subplot()
    doubling_axis(axes, values, apart=apart)
    assert list(axes.xaxis.get_major_locator()()) == ticks
    assert ends is None or axes.get_xlim() == ends


@pytest.mark.parametrize(
    ("values", "ends", "step"),
    [
        # From 0, unless two thirds of it would be empty; a margin of a twentieth of what is shown.
        ((100, 300), (0, 315), 128),
        ((101, 300), (91.05, 309.95), 64),
        ((240, 60), (0, 252), 64),
        ((5,), (4, 6), 1),
    ],
)
def test_an_axis_of_tokens(values, ends, step) -> None:
    axes = Figure().add_subplot()
    token_axis(axes, values, ticks=4)
    assert axes.get_xlim() == pytest.approx(ends)
    shown = axes.xaxis.get_major_locator()()
    assert {after - before for before, after in pairwise(shown)} == {step}
    assert all(tick % step == 0 for tick in shown)


@pytest.mark.parametrize(("letters", "columns"), [(1, 4), (27, 3), (28, 2), (200, 1)])
def test_columns_of_a_legend_hold_105_letters(letters, columns) -> None:
    """Each has 8 besides its label."""
    curves = [Curve(label=f"{at}".zfill(letters), x=[1, 2], y=[0, at], style=at) for at in range(4)]
    picture = curve_picture({"": curves}, name="n", title="t", across="x", up="y", caption="")
    assert picture is not None
    [legend] = picture.figure.legends
    assert legend._ncols == columns  # type: ignore[attr-defined]


def test_every_name_is_drawn_as_it_is_written() -> None:
    """As no formula, in the legend whatever it begins with, and as escapes where the font has no signs for it."""
    names = ["_old", "a$b$c", "a$\\frac$", "\u5929\u5730", "b $1"]
    curves = [Curve(label=name, x=[1, 2], y=[0, style], style=style) for style, name in enumerate(names)]
    picture = curve_picture({"$x$": curves}, name="n", title="_t $t$", across="x", up="y", caption="")
    assert picture is not None
    [legend] = picture.figure.legends
    shown = [text.get_text() for text in legend.get_texts()]
    assert shown == ["_old", "a$b$c", "a$\\frac$", "\\u5929\\u5730", "b $1"]
    assert not any(text.get_parse_math() for text in legend.get_texts())
    assert "\u5929\u5730" in picture.alt


def score(value: float | None, length: int, depth: float | None, **other: object) -> Row:
    fields = {"model": "m", "task": "babilong_qa1", "metric": "accuracy", "unit": "share"} | other
    return Row(value=value, length=length, depth=depth, **fields)  # type: ignore[arg-type]


def test_each_cell_is_written_in_per_cent() -> None:
    rows = [score(0.25 * i, length, depth) for i, depth in enumerate((0, 50, 100)) for length in (2048, 4096)]
    rows += [
        score(0.9, 2048, None),
        score(1 / 6, 2048, None, metric="chance"),
        score(0.1, 2048, 0, metric="gold"),
    ]
    picture = score_by_depth(rows)
    assert picture is not None
    assert picture.name == "depth-babilong_qa1"
    assert "2048 tokens: 0 at 0 %, 25 at 50 %, 50 at 100 %" in picture.alt
    assert " 17." in picture.caption
    assert "<image" not in picture.svg, "a drawing, no bitmap"
    # On a dark screen cells keep their colours, and so do the numbers on them.
    assert not {"#fefefe", "#010101"} & set(DARK)
    assert "fill: #fefefe" in picture.svg


def test_models_have_a_panel_each_and_seeds_are_averaged() -> None:
    rows = [
        score(value, 512, 0, model=model, seed=seed)
        for model in "ab"
        for seed, value in enumerate((0.0, 1.0))
    ]
    picture = score_by_depth(rows)
    assert picture is not None
    assert picture.alt.endswith("a: 512 tokens: 50 at 0 %. b: 512 tokens: 50 at 0 %.")
    wide, narrow = (float(re.search(r'width="([\d.]+)pt"', svg)[1]) for svg in (picture.svg, picture.narrow))  # pyright: ignore
    assert (wide, narrow) == (72 * WIDTH, pytest.approx(72 * NARROW)), "on a phone one below the other"


def test_without_depths_there_is_no_picture() -> None:
    assert score_by_depth([score(0.5, 512, None)]) is None
    assert score_by_depth([score(None, 512, 0)]) is None
