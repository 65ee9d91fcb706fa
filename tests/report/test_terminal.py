import re
from collections.abc import Sequence
from typing import Any

import pytest

from lengthwise.report.comparison_curve import benefits_by_distance
from lengthwise.report.sentence import sce_sentence
from lengthwise.report.terminal import PICTURES, WIDTH, answer
from lengthwise.results import Results, Row
from tests.report import made_rows as made


def lines_of(rows: list[Row], **config: Any) -> list[str]:
    lines = answer(Results(kind="k", model_name="m", config=config, rows=rows))
    assert all(len(line) <= WIDTH for line in lines), lines
    return lines


def numbers(text: str) -> list[str]:
    return re.findall(r"-?\d+(?:,\d{3})*(?:\.\d+)?", text)


def plotted(lines: Sequence[str]) -> dict[str, int]:
    """The column of the point in each line of the picture, by the place at its beginning."""
    return {line.split()[0]: line.index("●") for line in lines if "●" in line}


def score(value: float | None, length: int | None = 512, depth: float | None = None, **other: Any) -> Row:
    fields = {"model": "m", "task": "needle", "metric": "accuracy", "unit": "share"} | other
    return Row(value=value, length=length, depth=depth, **fields)


def test_loss_is_drawn_by_length_and_the_lowest_is_named() -> None:
    rows = [
        Row(model="m", task="perplexity", metric="loss", value=value, length=length)
        for length, value in ((64, 3.5), (128, 3.0), (256, 4.0))
    ]
    lines = lines_of(rows)
    assert {"256", "4.000", "64", "0.500", "128", "3.000"} <= set(numbers(" ".join(lines)))
    places = plotted(lines)
    assert places["128"] < places["64"] < places["256"], "values go to the right"


def test_the_two_limits_and_their_places_in_the_curves() -> None:
    lines = lines_of(made.limit_rows(), share=0.1)
    text = " ".join(lines)
    assert {"10,000", "7,000", "9,600"} <= set(numbers(text))
    marks = [index for index, line in enumerate(lines) if line.strip().startswith("--")]
    assert len(marks) == 2
    before, after = (int(lines[marks[0] + step].split()[0]) for step in (-1, 1))
    assert before <= 10_000 < after
    before, after = (int(lines[marks[1] + step].split()[0]) for step in (-1, 1))
    assert before <= 7_000 < after
    assert "at least 16,384" in " ".join(lines_of(made.limit_rows(sound=None)))


@pytest.mark.parametrize(
    ("task", "values", "fields", "expected"),
    [
        # A limit that is not defined, and no key tokens.
        ("limit", {"sound_up_to": 176.0, "used_up_to": None, "tolerance": 0.1}, {"length": 1024}, {"176"}),
        ("longppl", {"longppl": None, "perplexity": 20.0}, {"length": 512, "unit": "ratio"}, {"20.00"}),
        (
            "training",
            {"cross_entropy_first": 3.25, "cross_entropy_last": 3.0},
            {"n": 5},
            {"3.2500", "3.0000", "5"},
        ),
    ],
)
def test_answers_of_a_few_numbers(task: str, values: Any, fields: Any, expected: set[str]) -> None:
    rows = [
        Row(model="m", task=task, metric=metric, value=value, **fields) for metric, value in values.items()
    ]
    assert expected <= set(numbers(" ".join(lines_of(rows))))


def test_scores_by_length_and_depth_in_per_cent() -> None:
    rows = [score(0.5, ci_low=0.25, ci_high=0.75), score(1 / 4, metric="chance")]
    rows += [score(value, depth=depth) for depth, value in ((0.0, 0.2), (50.0, 0.8))]
    lines = lines_of(rows)
    assert {"50", "25", "75", "512"} <= set(numbers(lines[0]))
    assert [line.split() for line in lines[-2:]] == [["0", "%", "20"], ["50", "%", "80"]]


@pytest.mark.parametrize(
    "row",
    [
        Row(model="m", task="perplexity", metric="loss", value=None, length=8),
        Row(model="m", task="perplexity", metric="loss", value=1.0, length=8, reference="n"),
    ],
)
def test_rows_without_an_answer(row: Row) -> None:
    assert lines_of([row]) == []


def test_the_sentence_on_sce_is_of_the_greatest_length() -> None:
    def row(metric: str, value: float, **given: Any) -> Row:
        return Row(model="m", task="misalignment", metric=metric, value=value, **given)

    rows = [
        row("sce", 5.0, length=64),
        row("entropy", 2.5, length=64),
        row("jeffreys", 2.5, length=64),
        row("jeffreys", 0.0274, length=128, ci_low=0.0254, ci_high=0.0294),
        row("sce", 6.9, length=128),
        row("entropy", 6.8726, length=128),
        row("jeffreys", 9.0, length=256, position=0, position_end=8),
    ]
    assert numbers(sce_sentence(rows) or "") == ["128", "99.6", "0.0274", "6.900"]
    assert sce_sentence(rows[:2]) is None
    assert sce_sentence([]) is None


@pytest.mark.parametrize(("begins", "shown"), [(0, [64, 192]), (120, [48, 64, 192])])
def test_benefits_of_another_length_stand_between_none_of_the_greatest(begins: int, shown: list[int]) -> None:
    """Decoded ends of windows have one distance for each length, so all of these are shown."""
    about: dict[str, Any] = {"model": "m", "task": "difference"}
    rows = [
        Row(value=0.01, metric="difference", length=length, position=begins, position_end=length, **about)
        for length in (128, 256)
    ]
    rows += [
        Row(value=1.0, metric=f"benefit_{side}", length=length, distance=distance, **about)
        for length, distance in ((128, 48), (256, 64), (256, 192))
        for side in "ab"
    ]
    assert [row.distance for row in benefits_by_distance(rows) if row.metric == "benefit_a"] == shown
    [head] = [
        line
        for line in PICTURES["difference"](
            rows, Results(kind="compare", model_name="m", config={}, rows=rows)
        )
        if "tokens back" in line
    ]
    assert numbers(head) == [str(distance) for distance in shown]
