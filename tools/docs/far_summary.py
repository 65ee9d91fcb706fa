"""The form with skips and repeats against cross entropy, on every text, task and model that was tried."""

from __future__ import annotations

from pathlib import Path

from lengthwise.report.tables import Cell, Table
from lengthwise_studies.far.studies import PARTS
from tools.docs.kept_results import kept_run

_FORM, _CONTROL = "skip + long repeats, CE", "no skip, CE"
ASKED = (
    ("books, numbers by key", "far-repeats", "", ""),
    ("books, where someone is, told once", "far-tracking", "tracking_one_move: ", ""),
    ("books, where someone is, told twice", "far-tracking", "tracking_two_moves: ", ""),
    ("source code", "far-code", "", ""),
    ("source code, trained on code", "far-code", "", "on code: "),
    ("Gemma 3 270M, books", "far-gemma-repeats", "", ""),
)
"""What was asked, the kept run, the task in its columns, and the text that both arms trained on."""


def summary_table(root: Path) -> Table:
    """Differences over three seeds, and p of the claim that more is answered."""
    rows: list[list[Cell]] = []
    for asked, run, task, text in ASKED:
        results = kept_run(root, run)
        tables = PARTS[results.kind].tables(results)
        over_seeds, verdicts = tables["over-seeds"], tables["verdicts"]
        both = f"{text}{_FORM} minus {text}{_CONTROL}"
        [line] = [row for row in over_seeds.rows if row[0] == (both if text else _FORM)]
        found = dict(zip(over_seeds.columns, line, strict=True))
        what, p = (verdicts.columns.index(name) for name in ("what", "p (Holm)"))
        [claim] = [row for row in verdicts.rows if row[what] == f"{task}accuracy at 7,000, {both}"]
        answers, right = (found[f"{task}{name} at 7,000"] for name in ("accuracy", "gold loss"))
        rows.append([asked, answers, claim[p], right, found["loss at 1,024"]])
    return Table(
        columns=["asked", "right answers", "p (Holm)", "loss of the right answer", "loss at 1,024 tokens"],
        rows=rows,
    )
