import re

import pytest

from lengthwise.report.drawing import NARROW, WIDTH
from lengthwise.report.heatmaps import score_by_depth
from lengthwise.results import Row


def row(value: float | None, length: int, depth: float | None, **other: object) -> Row:
    fields = {"model": "m", "task": "babilong_qa1", "metric": "accuracy", "unit": "share"} | other
    return Row(value=value, length=length, depth=depth, **fields)  # type: ignore[arg-type]


def test_each_cell_is_written_in_per_cent() -> None:
    rows = [row(0.25 * i, length, depth) for i, depth in enumerate((0, 50, 100)) for length in (2048, 4096)]
    rows += [row(0.9, 2048, None), row(1 / 6, 2048, None, metric="chance"), row(0.1, 2048, 0, metric="gold")]
    picture = score_by_depth(rows)
    assert picture is not None
    assert picture.name == "depth-babilong_qa1"
    assert "2048 tokens: 0 at 0 %, 25 at 50 %, 50 at 100 %" in picture.alt
    assert " 17." in picture.caption
    assert "<image" not in picture.svg, "a drawing, no bitmap"
    assert 'class="values"' in picture.svg, "a dark page keeps its colours"


def test_models_have_a_panel_each_and_seeds_are_averaged() -> None:
    rows = [
        row(value, 512, 0, model=model, seed=seed) for model in "ab" for seed, value in enumerate((0.0, 1.0))
    ]
    picture = score_by_depth(rows)
    assert picture is not None
    assert picture.alt.endswith("a: 512 tokens: 50 at 0 %. b: 512 tokens: 50 at 0 %.")
    wide, narrow = (float(re.search(r'width="([\d.]+)pt"', svg)[1]) for svg in (picture.svg, picture.narrow))  # pyright: ignore
    assert (wide, narrow) == (72 * WIDTH, pytest.approx(72 * NARROW)), "on a phone one below the other"


def test_without_depths_there_is_no_picture() -> None:
    assert score_by_depth([row(0.5, 512, None)]) is None
    assert score_by_depth([row(None, 512, 0)]) is None
