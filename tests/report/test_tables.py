import csv
import io
from collections import Counter

import pytest
from rich.console import Console

from lengthwise.report.html import Section, render_page
from lengthwise.report.tables import Estimate, Table, cell_text, settings_table
from lengthwise.report.writers import to_csv, to_latex, to_markdown, to_rich
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
        (Estimate(0.0000000123), "0.000000"),
        (Estimate(0.0), "0"),
        (Estimate(2.0, 2.0, 2.0), "2.000 [2.000, 2.000]"),
        (Estimate(None), "n/a"),
        (Estimate(None, 1.0, 2.0), "n/a"),
        (Estimate(1.5, 1.0, None), "1.500"),
    ],
)
def test_as_many_digits_as_the_interval_justifies(estimate: Estimate, text: str) -> None:
    assert estimate.text == text


def test_settings_are_flattened() -> None:
    table = settings_table({"a": {"b": {"c": 1}}, "d": (1, 2), "e": None}, caption="s")
    assert list(table.rows) == [("a.b.c", "1"), ("d", "1, 2"), ("e", "none")]
