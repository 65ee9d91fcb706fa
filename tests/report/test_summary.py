from __future__ import annotations

from lengthwise.report.numbers import Estimate
from lengthwise.report.summary import (
    TASKS,
    difference_rows,
    headline_rows,
    in_order,
    rows_table,
    sce_sentence,
    side_by_side,
    task_of,
)
from lengthwise.results import Row


def row(metric: str, value: float | None, **given: object) -> Row:
    return Row(**{"model": "m", "task": "misalignment", "metric": metric, "value": value, **given})  # type: ignore[arg-type]


def test_headline_rows_leave_out_bins_pairs_and_differences() -> None:
    plain = row("sce", 1.0, length=8)
    rows = [
        plain,
        row("sce", 1.0, length=8, position=0, position_end=4),
        row("sce", 1.0, length=8, context=8, context_other=4),
        row("sce", 1.0, length=8, reference="n"),
    ]
    assert headline_rows(rows) == [plain]
    assert difference_rows(rows) == [rows[3]]


def test_the_sentence_on_sce_is_of_the_greatest_length() -> None:
    rows = [
        row("sce", 5.0, length=64),
        row("entropy", 2.5, length=64),
        row("jeffreys", 2.5, length=64),
        row("jeffreys", 0.0274, length=128, ci_low=0.0254, ci_high=0.0294),
        row("sce", 6.9, length=128),
        row("entropy", 6.8726, length=128),
        row("jeffreys", 9.0, length=256, position=0, position_end=8),
    ]
    assert sce_sentence(rows) == (
        "At 128 tokens 99.6 % of SCE is entropy (how sharp the predictions are, not how far they agree); "
        "0.0274 of 6.900 nats are disagreement."
    )
    assert sce_sentence(rows[:2]) is None
    assert sce_sentence([]) is None


def test_rows_in_the_order_of_the_tasks() -> None:
    rows = [
        Row(model="m", task="recall", metric="benefit", value=1.0),
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


def test_every_metric_is_explained_and_an_unknown_task_has_a_title() -> None:
    assert all(meaning for task in TASKS.values() for meaning in task.metrics.values())
    assert task_of("useful_context").title == "Useful context"


def test_rows_table_has_a_line_for_each_row_and_no_empty_columns() -> None:
    rows = [
        row("sce", 6.9, length=64, ci_low=6.8, ci_high=7.0, n=12, documents=3),
        row("js", None, length=64),
    ]
    table = rows_table(rows)
    assert list(table.columns) == [
        "model",
        "metric",
        "length",
        "value [95 % interval]",
        "unit",
        "n",
        "documents",
    ]
    assert list(table.rows) == [
        ("m", "sce", 64, Estimate(6.9, 6.8, 7.0), "nats", 12, 3),
        ("m", "js", 64, Estimate(None), "nats", None, None),
    ]
    both = rows_table([*rows, Row(model="m", task="recall", metric="benefit", value=1.0, distance=4)])
    assert "task" in both.columns
    assert "distance" in both.columns


def test_differences_carry_their_sign() -> None:
    table = rows_table([row("sce", 0.5, length=64, reference="n")])
    assert table.rows[0][4] == Estimate(0.5, signed=True)
    assert "reference" in table.columns


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
