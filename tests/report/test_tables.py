from __future__ import annotations

import csv
import io

import pytest
from rich.console import Console

from lengthwise.report.numbers import Estimate
from lengthwise.report.tables import Table, to_csv, to_html, to_latex, to_markdown, to_rich

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


def test_a_row_of_the_wrong_width_is_our_mistake() -> None:
    with pytest.raises(AssertionError, match="1 cells for columns"):
        Table(columns=("a", "b"), rows=[("x",)])


def test_csv_has_full_precision_and_splits_intervals() -> None:
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows[0] == ["model", "length", "loss", "loss low", "loss high", "note"]
    assert rows[1] == ["a_b", "128", "3.2104", "3.1", "3.3", "50 % & more"]
    assert rows[2] == ["HF/x|y", "256", "", "", "", ""]
    assert rows[3][2:5] == ["3.5", "", ""]
    assert rows[3][5] == TABLE.rows[2][3]


def test_markdown_escapes_what_would_be_markup() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "**Loss & [co]**",
        "",
        "| model | length | loss | note |",
        "|---|--:|--:|---|",
        "| a_b | 128 | 3.21 [3.10, 3.30] | 50 % & more |",
        r"| HF/x\|y | 256 | n/a |  |",
        r"| \<script> | 512 | 3.500 | $x_1^2$ ~ {z} #1 \\ \*bold\* \`code\` |",
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
    html = to_html(TABLE)
    assert "<caption>Loss &amp; [co]</caption>" in html
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert (
        '<td class="number" data-value="3.2104">3.21 <span class="interval">[3.10, 3.30]</span></td>' in html
    )
    assert '<td class="number" data-value="">n/a</td>' in html
    assert '<td class="number" data-value="128">128</td>' in html
    assert '<p class="note">95 % intervals</p>' in html
    assert html.count("<tr>") == 4


def test_long_texts_may_wrap() -> None:
    html = to_html(Table(columns=("short", "long"), rows=[("x", "y" * 41)]))
    assert '<td class="text" data-value="x">' in html
    assert '<td class="long"' in html


def test_terminal_shows_text_as_it_is() -> None:
    stream = io.StringIO()
    Console(file=stream, width=200).print(to_rich(TABLE))
    shown = stream.getvalue()
    assert "Loss & [co]" in shown
    assert "3.21 [3.10, 3.30]" in shown, "square brackets are not read as markup"
    assert "*bold* `code`" in shown
