"""The page of a table: the paper's numbers beside ours, the claims with what could have been seen, one picture."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from lengthwise.report.html import render_page
from lengthwise.report.tables import Estimate, Table
from lengthwise.results import Results, Row
from lengthwise_studies.arms import arm_after
from lengthwise_studies.claims import by_term, judge
from lengthwise_studies.paired_claims import Measured
from lengthwise_studies.paper.all_tables import TABLES
from lengthwise_studies.paper.methods import PLAIN, SCE, UNTRAINED
from lengthwise_studies.paper.sizes import LAPTOP
from lengthwise_studies.paper.table_page import what_was_run
from lengthwise_studies.real.study import FULL, REAL

LOSSES = {PLAIN: 2.0, SCE: 1.9}


def _run(name: str, **provenance: object) -> Results:
    """Three seeds, a hundredth apart, at the laptop's scale; after a quarter of the steps losses are one higher."""
    size, rows = LAPTOP, []
    row = Row(model="m", task="perplexity", metric="loss", value=None, length=2 * size.trained, documents=7)
    for (arm, loss), seed, (mark, more) in (
        (pair, seed, after)
        for pair in LOSSES.items()
        for seed in range(3)
        for after in ((None, 0.0), (size.steps * 50 // 200, 1.0))
    ):
        value = loss + more + 0.01 * seed
        rows.append(replace(row, arm=arm_after(arm, mark), seed=seed, value=value))
        if arm == SCE:
            difference = {"value": LOSSES[SCE] - LOSSES[PLAIN] + 0.001 * seed, "stderr": 0.001}
            names = {"arm": arm_after(SCE, mark), "reference": arm_after(PLAIN, mark)}
            rows.append(replace(row, seed=seed, **names, **difference))
    for seed in range(3):
        # What plain CE has less is what the start has more.
        gained = {"arm": UNTRAINED, "reference": PLAIN, "value": 0.1 + 0.01 * (seed - 1)}
        rows.append(replace(row, seed=seed, **gained))
        rows.append(replace(row, seed=seed, arm=UNTRAINED, metric="inverse_temperature", value=0.8, unit=""))
    config = {"size": size.to_dict()}
    return Results(kind=name, model_name="tiny", config=config, rows=rows, provenance=dict(provenance))


def _cells(table: Table) -> dict[str, dict[str, object]]:
    return {str(row[0]): dict(zip(table.columns, row, strict=True)) for row in table.rows}


def test_the_papers_numbers_stand_beside_ours_in_its_unit() -> None:
    results = _run("table4", model={"parameters": 935040, "name": "/cache/tiny-books-700-seed0"})
    run, beside = TABLES["table4"].sections(results, Path())[0].tables
    said = _cells(run)
    assert said["model"] == {
        "": "model",
        "the paper": "meta-llama/Llama-2-7b-hf",
        "ours": "tiny, 935,040 parameters",
    }
    assert said["context of the model, T"]["the paper"] == "4,096 tokens"
    assert said["pretraining"]["ours"] == "700 steps on books"
    assert said["fine-tuning"]["the paper"] == "200 steps of 64 windows of 4,096 tokens"
    assert said["fine-tuning"]["ours"] == "152 steps of 8 windows of 128 tokens"
    assert said["losses at"]["ours"] == "1T, 2T, 4T"
    assert said["held-out documents"]["ours"] == "7"
    assert said["plain CE gains at 2T, nats"]["ours"] == "+0.100 [+0.090, +0.110]"
    assert said["inverse temperature of the start"]["ours"] == "0.8000 [0.8000, 0.8000]"
    found = _cells(beside)
    # Table 4 of the paper, page 9: alpha 0.1 and its baseline after 50 and 200 steps.
    assert [found[SCE][f"perplexity at 2T{after}: paper"] for after in (", 50 steps", "")] == ["6.89", "5.88"]
    assert [found[PLAIN][f"perplexity at 2T{after}: paper"] for after in (", 50 steps", "")] == [
        "7.21",
        "6.12",
    ]
    assert found["SCE 1"]["LongBench-E: paper"] == "19.9"
    assert "LongBench-E: ours" not in beside.columns, "it is not measured at this scale"
    for after, more in ((", 50 steps", 1.0), ("", 0.0)):
        ours = found[SCE][f"perplexity at 2T{after}: ours"]
        assert isinstance(ours, Estimate)
        expected = [math.exp(LOSSES[SCE] + more + by) for by in (0.01, 0.0, 0.02)]
        assert [ours.value, ours.low, ours.high] == pytest.approx(expected)
        assert found["SCE 0.3"][f"perplexity at 2T{after}: ours"] is None


def test_the_papers_steps_are_those_of_its_table() -> None:
    """The rebuttal compares with CREAM after 100 steps; the starts of `pretraining` are its own."""
    said = _cells(TABLES["cream"].sections(_run("cream"), Path())[0].tables[0])
    assert str(said["fine-tuning"]["the paper"]).startswith("EABF: 100 steps of 64 windows")
    assert "pretraining" not in said, "nothing tells which start it was"
    run = _run("pretraining-2800")
    rows = [replace(row, model="tiny-books-2800-seed0") for row in run.rows]
    said = _cells(TABLES["pretraining-2800"].sections(replace(run, rows=rows), Path())[0].tables[0])
    assert said["pretraining"]["ours"] == "2,800 steps on books"


def test_each_text_has_its_own_number_of_documents() -> None:
    run = _run("table2")
    books, code = (
        [replace(row, documents=count, arm=f"{name}: {row.arm}") for row in run.rows if row.reference is None]
        for name, count in (("books", 7), ("PG19", 33))
    )
    said = _cells(TABLES["table2"].sections(replace(run, rows=[*books, *code]), Path())[0].tables[0])
    assert said["held-out documents"]["ours"] == "books: 7; PG19: 33"


def test_a_temperature_at_the_end_of_its_range_is_a_bound() -> None:
    run, shown = _run("table4"), {0.5: "0.5 or less", 2.0: "2 or more"}
    for value, text in shown.items():
        rows = [replace(row, value=value) if row.metric == "inverse_temperature" else row for row in run.rows]
        said = _cells(TABLES["table4"].sections(replace(run, rows=rows), Path())[0].tables[0])
        assert said["inverse temperature of the start"]["ours"] == text


def test_what_brackets_hold_is_said_of_one_seed_too() -> None:
    run = _run("table4")
    one = replace(run, config={"size": replace(LAPTOP, seeds=1).to_dict()})
    notes = [TABLES["table4"].sections(each, Path())[0].tables[1].notes for each in (run, one)]
    assert [("seed." in note, "documents" in note) for [note] in notes] == [(True, False), (False, True)]


def test_the_lead_counts_help_and_harm_apart() -> None:
    """Table 4 has eight claims that a small weight helps and seven that a large one harms; two have numbers here."""
    [lead] = TABLES["table4"].sections(_run("table4"), Path())[0].paragraphs
    assert lead.endswith(
        "By what a claim says of the term: that it helps, 2 reproduced, 6 not run; that it harms, 7 not run."
    )


def test_the_lead_leaves_no_claim_out() -> None:
    judged = judge(TABLES["ranges"].claims, Measured(rows=[]), LAPTOP)
    assert (
        by_term(judged)
        == "By what a claim says of the term: that it helps, 1 not run; something else, 3 not run."
    )


def test_each_claim_has_its_verdict_and_what_could_have_been_seen() -> None:
    _, section = TABLES["table4"].sections(_run("table4"), Path())
    [claims] = section.tables
    [line] = [row for row in claims.rows if row[0] == "alpha 0.1 lowers the perplexity after 200 steps"]
    cells = dict(zip(claims.columns, line, strict=True))
    assert (cells["paper"], cells["verdict"]) == ("perplexity 5.88 against 6.12 (-0.040)", "reproduced")
    assert float(str(cells["the paper's size, could be seen"]).removeprefix("excluded, ")) < 0.02
    assert [table.caption for table in section.details] == [
        "The rule of each claim",
        "Every arm",
        "Paired difference from the reference",
    ]


@pytest.mark.parametrize("name", TABLES)
def test_every_table_fits_the_page(name: str) -> None:
    """Also those that are folded away: none has more than six columns."""
    sections = first, second = TABLES[name].sections(_run(name), Path())
    page = render_page("title", "lead", sections)
    assert max(head.count("<th ") for head in re.findall(r"<thead>.*?</thead>", page, re.DOTALL)) <= 6
    [claims] = second.tables
    assert len(claims.rows) == len(TABLES[name].claims)
    assert len(first.figures) <= 1
    run = first.tables[0]
    ours = TABLES[name].label.startswith("Ours")
    assert ("the paper" in run.columns) == (not ours or name == "twenty")


def test_an_extension_of_ours_is_not_said_to_be_the_papers() -> None:
    results = Results(kind=REAL.name, model_name="tiny", config={"size": FULL.to_dict()}, rows=[])
    said = _cells(what_was_run(REAL, results, FULL))["extension"]
    assert (said["the paper"], said["ours"]) == ("CLEX to 16T", "YaRN to 4T; CLEX to 4T")
