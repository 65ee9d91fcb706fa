import sys
import types
from typing import Any

import pytest

from lengthwise.measure.measurement import About
from lengthwise.measure.table import MEASUREMENTS, Entry
from lengthwise.report.tables import (
    Estimate,
    difference_table,
    display_of,
    in_order,
    questions,
    rows_table,
    side_by_side,
)
from lengthwise.results import Row


def row(metric: str, value: float | None, **given: object) -> Row:
    return Row(**{"model": "m", "task": "misalignment", "metric": metric, "value": value, **given})  # type: ignore[arg-type]


def test_rows_in_the_order_of_the_tasks() -> None:
    rows = [
        Row(model="m", task="limit", metric="benefit", value=1.0),
        row("own", 1.0),
        row("jeffreys", 1.0),
        row("sce", 1.0, length=2),
        row("sce", 1.0, length=1),
    ]
    assert [(r.metric, r.length) for r in in_order(rows)] == [
        ("sce", 2),
        ("sce", 1),
        ("jeffreys", None),
        ("own", None),
        ("benefit", None),
    ]


def test_every_measurement_is_shown_with_its_own_display_and_question() -> None:
    tasks = {
        entry.measurement.about.task: entry for entry in MEASUREMENTS.values() if entry.measurement.about.task
    }
    # Those of an evaluation have tasks of their own.
    assert [entry for entry in MEASUREMENTS.values() if entry not in tasks.values()] == [MEASUREMENTS["eval"]]
    for task, entry in tasks.items():
        assert entry.task == task
        assert display_of(task) is entry.measurement.about
        assert questions()[task] == entry.summary
        assert all(display_of(task).metrics.values())
    assert list(questions()) == [*tasks, "training"]
    assert display_of("useful_context").title == "Useful context"


def test_a_display_is_found_by_the_task_wherever_the_class_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class WordOrder:
        about = About(task="order", title="Word order", metrics={"cost": "of a shuffled half"})

    module: Any = types.ModuleType("lengthwise.measure.word_order")
    module.WordOrder = WordOrder
    monkeypatch.setitem(sys.modules, module.__name__, module)
    entry = Entry("measure.word_order:WordOrder", "order", "Does the order matter?")
    monkeypatch.setitem(MEASUREMENTS, "shuffle", entry)
    assert display_of("order") is WordOrder.about
    assert questions()["order"] == entry.summary


def test_rows_table_has_a_line_for_each_row_and_no_empty_columns() -> None:
    rows = [
        row("sce", 6.9, length=64, ci_low=6.8, ci_high=7.0, n=1200, documents=3),
        row("js", None, length=64, position=8, position_end=16),
    ]
    table = rows_table(rows)
    assert list(table.columns) == ["metric", "where", "value [95 % interval]", "unit, from"]
    assert list(table.rows) == [
        ("sce", "64 tokens", Estimate(6.9, 6.8, 7.0), "nats, 1,200, 3 documents"),
        ("js", "64 tokens, positions 8 to 16", Estimate(None), "nats"),
    ]
    both = rows_table([*rows, Row(model="n", task="limit", metric="benefit", value=1.0, distance=4)])
    assert list(both.columns)[:3] == ["model", "task", "metric"]
    assert both.rows[-1][:4] == ("n", "limit", "benefit", "4 back")


def test_differences_carry_their_sign() -> None:
    table = rows_table([row("sce", 0.5, length=64, reference="n")])
    assert table.rows == [("sce", "64 tokens", "n", Estimate(0.5, signed=True), "nats")]
    assert list(table.columns)[2] == "against"


def test_side_by_side_has_a_column_for_each_model_arm_and_seed() -> None:
    rows = [
        row("sce", 1.0, length=64),
        row("sce", 2.0, length=128),
        row("sce", 3.0, model="n", length=64, seed=0),
        row("sce", 4.0, model="n", length=64, seed=1),
    ]
    table = side_by_side(rows)
    assert list(table.columns) == ["metric", "length", "m", "n, seed 0", "n, seed 1"]
    assert [list(line) for line in table.rows] == [
        ["sce", 64, Estimate(1.0), Estimate(3.0), Estimate(4.0)],
        ["sce", 128, Estimate(2.0), None, None],
    ]


def test_a_difference_stands_with_its_two_numbers() -> None:
    rows = [
        row("sce", 3.0, length=64),
        row("sce", 2.0, length=64, model="n"),
        row("sce", 9.0, length=64, model="n", depth=50.0),
        row("sce", -1.0, length=64, model="n", reference="m", ci_low=-2.0, ci_high=-0.5, p_holm=0.01),
        row("sce", 0.1, length=128, model="n", reference="m"),
    ]
    table = difference_table(rows)
    assert list(table.columns)[2:5] == ["run", "value", "reference's"]
    assert list(table.rows[0]) == [
        "sce",
        64,
        "n",
        Estimate(2.0),
        Estimate(3.0),
        Estimate(-1.0, -2.0, -0.5, signed=True),
        "0.0100",
        "yes",
    ]
    assert list(table.rows[1][3:5]) == [None, None]
    assert list(table.rows[1][6:]) == ["", ""]
