import csv
import io
import sys
import types
from collections import Counter
from typing import Any

import pytest
from rich.console import Console

from lengthwise.measure.measurement import About
from lengthwise.measure.table import MEASUREMENTS, Entry
from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import (
    Estimate,
    Table,
    cell_text,
    difference_table,
    display_of,
    fitted,
    in_order,
    questions,
    row_text,
    rows_table,
    side_by_side,
)
from lengthwise.report.writers import to_csv, to_latex, to_markdown, to_rich
from lengthwise.results import Row
from tests.report import made_rows as made

TABLE = Table(
    columns=("model", "length", "loss", "note"),
    rows=[
        ("a_b", 128, Estimate(3.2104, 3.1, 3.3), "50 % & more"),
        ("HF/x|y", 256, Estimate(None), None),
        ("<script>", 512, Estimate(3.5), "$x_1^2$ ~ {z} #1 \\ *bold* `code`"),
    ],
    caption="Loss & [co]",
    notes=("95 % intervals",),
)


def test_csv_is_one_tidy_table_of_all_rows() -> None:
    rows = [*made.limit_rows(sound=None), *made.perplexity_rows()]
    found = list(csv.DictReader(io.StringIO(to_csv(rows))))
    assert len(found) == len(rows)
    assert [float(line["value"]) for line in found] == [row.value for row in rows], "full precision"
    assert [line["at_least"] for line in found] == ["True", *[""] * (len(rows) - 1)], (
        "a bound is no measurement"
    )
    assert found[0]["ci_low"] == str(rows[0].ci_low)
    assert "depth" not in found[0]


def test_markdown_escapes_what_would_be_markup() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "**Loss & [co]**",
        "",
        "| model | length | loss | note |",
        "|---|--:|--:|---|",
        "| a_b | 128 | 3.21 [3.10, 3.30] | 50 % & more |",
        r"| HF/x\|y | 256 | n/a |  |",
        r"| &lt;script> | 512 | 3.500 | $x_1^2$ ~ {z} #1 \\ \*bold\* \`code\` |",
        "",
        "95 % intervals",
    ]
    outside = Table(columns=("_a_", "x\ny"), rows=[("__b", "c_")])
    assert to_markdown(outside) == "| \\_a\\_ | x y |\n|---|---|\n| \\_\\_b | c\\_ |\n"


def test_latex_escapes_what_would_be_commands() -> None:
    lines = [line.strip() for line in to_latex(TABLE).splitlines()]
    assert r"\caption{Loss \& {[}co]}" in lines
    assert r"\begin{tabular}{lrrl}" in lines
    assert r"a\_b & $128$ & $3.21$ {\scriptsize $[3.10, 3.30]$} & 50 \% \& more \\" in lines
    assert r"HF/x|y & $256$ & n/a &  \\" in lines
    assert (
        r"<script> & $512$ & $3.500$ & \$x\_1\textasciicircum{}2\$ \textasciitilde{} \{z\} \#1 "
        r"\textbackslash{} *bold* `code` \\" in lines
    )
    assert lines[-1] == r"\end{table}"


def test_html_is_escaped_and_sortable_by_the_full_value() -> None:
    html = render_page("T", "", [Section(title="S", tables=[TABLE])])
    assert "<caption>Loss &amp; [co]</caption>" in html
    assert "&lt;script&gt;" in html
    assert html.count("<script>") == 1, "that of the page"
    assert (
        '<td class="number" data-label="loss" data-value="3.2104">3.21 '
        '<span class="interval">[3.10, 3.30]</span></td>' in html
    )
    assert '<td class="number" data-label="loss" data-value="">n/a</td>' in html
    assert '<td class="number" data-label="length" data-value="128">128</td>' in html
    assert '<p class="note">95 % intervals</p>' in html
    assert html.count("<tr>") == 4


def test_long_texts_may_wrap() -> None:
    table = Table(columns=("short", "long"), rows=[("x", "y" * 41)])
    html = render_page("T", "", [Section(title="S", tables=[table])])
    assert '<td class="text" data-label="short" data-value="x">' in html
    assert '<td class="long"' in html


def test_a_wide_table_is_laid_out_in_parts_that_fit_and_loses_no_cell() -> None:
    rows = [["p", "c", *range(7)], ["q", "", *range(7, 14)], ["r", "", *range(14, 18), None, "", None]]
    first, second = fitted(Table(columns=["place", "claim", *"abcdefg"], rows=rows, caption="C", notes=["n"]))
    assert (first.columns, second.columns) == (["place, claim", *"abcd"], ["place, claim", *"efg"])
    assert first.rows == [["p: c", 0, 1, 2, 3], ["q", 7, 8, 9, 10], ["r", 14, 15, 16, 17]]
    assert second.rows == [["p: c", 4, 5, 6], ["q", 11, 12, 13]]
    assert [(part.caption, part.notes) for part in (first, second)] == [("C", ()), ("", ["n"])]
    assert fitted(TABLE) == [TABLE]


def terminal(table: Table, width: int) -> str:
    stream = io.StringIO()
    Console(file=stream, width=width).print(to_rich(table, width=width))
    return stream.getvalue()


def test_terminal_shows_text_as_it_is() -> None:
    shown = terminal(TABLE, 200)
    assert "Loss & [co]" in shown
    assert "3.21 [3.10, 3.30]" in shown, "square brackets are not read as markup"
    assert "*bold* `code`" in shown


@pytest.mark.parametrize("width", [80, 60, 40])
def test_terminal_folds_and_never_crops(width: int) -> None:
    """The widest table, of two runs: at 80 columns it once lost interval, p and verdict."""
    columns = (
        "metric",
        "length",
        "run",
        "value",
        "reference's",
        "difference [95 % interval]",
        "p (Holm)",
        "noise",
    )
    estimates = Estimate(3.2123), Estimate(3.2335), Estimate(-0.0212, -0.0314, -0.0109, signed=True)
    table = Table(
        columns=columns,
        rows=[
            ("loss_best_temperature", 16384, "runs/after-training-with-sce", *estimates, "< 0.0001", "yes")
        ],
        caption="difference of models/smollm2-135m-instruct",
    )
    shown = terminal(table, width)
    assert all(len(line) <= width for line in shown.splitlines())
    seen = Counter(shown)
    for text in (*columns, *map(cell_text, table.rows[0]), table.caption):
        seen.subtract(text.replace(" ", ""))
    assert min(seen.values()) == 0
    assert ("[-0.031," in shown) is ("-0.011]" in shown) is (width == 80)
    # Names are broken at their joints.
    assert all(
        (f" {part} " in shown) is (width == 80) for part in ("loss_best_", "temperature", "reference's")
    )


@pytest.mark.parametrize(
    ("estimate", "text"),
    [
        (Estimate(6.8973, 6.8123, 6.9832), "6.897 [6.812, 6.983]"),
        (Estimate(0.00713, 0.00672, 0.00751), "0.00713 [0.00672, 0.00751]"),
        (Estimate(24.913, 22.7, 27.2), "24.9 [22.7, 27.2]"),
        (Estimate(1234.4, 1000.0, 1500.0), "1234 [1000, 1500]"),
        (Estimate(512, 496, 512, at_least=True), "at least 512 [496, 512]"),
        (Estimate(0.0312, 0.0211, 0.0413, signed=True), "+0.031 [+0.021, +0.041]"),
        (Estimate(-0.0312, -0.0413, -0.0211, signed=True), "-0.031 [-0.041, -0.021]"),
        (Estimate(0.00001, -0.02, 0.02, signed=True), "+0.000 [-0.020, +0.020]"),
        (Estimate(-0.00001, -0.02, 0.02), "0.000 [-0.020, 0.020]"),
        (Estimate(3.14159), "3.142"),
        (Estimate(31415.9), "31416"),
        (Estimate(1.234e38, 1e3, 2e38), "1.23e+38 [1000, 2e+38]"),
        (Estimate(0.0000000123), "1.2e-08"),
        (Estimate(1.3e-7, -2e-8, 2.8e-7), "1.3e-07 [-2e-08, 2.8e-07]"),
        (Estimate(0.0), "0"),
        (Estimate(2.0, 2.0, 2.0), "2.000 [2.000, 2.000]"),
        (Estimate(None), "n/a"),
        (Estimate(None, 1.0, 2.0), "n/a"),
        (Estimate(1.5, 1.0, None), "1.500"),
    ],
)
def test_as_many_digits_as_the_interval_justifies(estimate: Estimate, text: str) -> None:
    assert estimate.text == text


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
        ("sce", "64 tokens", Estimate(6.9, 6.8, 7.0), "nats, n = 1,200, 3 documents"),
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


NATS = {1.23456: "1.235", 0.00071: "0.001", 0.0000712: "0.000071", -3.1e-8: "-3.1e-08", 0.0: "0.000"}


@pytest.mark.parametrize("value", NATS)
def test_nats_without_an_interval_are_not_rounded_to_nothing(value):
    assert row_text(Row(model="m", task="ppl", metric="loss", value=value, unit="nats")) == NATS[value]
