"""The form with skips and repeats against cross entropy, on every text, task and model that was tried."""

from __future__ import annotations

from pathlib import Path

from lengthwise.report.tables import Cell, Table
from lengthwise_studies.claims import judge, shown_p
from lengthwise_studies.far.claims import numbers
from lengthwise_studies.far.studies import NEEDLE, ON_BOOKS, ON_CODE, PARTS, TRACKING
from lengthwise_studies.paired_claims import Measured, estimate_over_seeds
from tools.docs.kept_results import kept_run

ASKED = (
    ("books, numbers by key", "far-repeats", NEEDLE, ON_BOOKS),
    ("books, where someone is, told once", "far-tracking", TRACKING[0], ON_BOOKS),
    ("books, where someone is, told twice", "far-tracking", TRACKING[1], ON_BOOKS),
    ("source code", "far-code", NEEDLE, ON_BOOKS),
    ("source code, trained on code", "far-code", NEEDLE, ON_CODE),
    ("Gemma 3 270M, books", "far-gemma-repeats", NEEDLE, ON_BOOKS),
)
"""What was asked, the kept run, its task, and the two arms: cross entropy and the form."""
_SHOWN = (("accuracy", 7000), ("gold_loss", 7000), ("loss", 1024))
"""Metric and tokens."""


def summary_table(root: Path) -> Table:
    """Differences over three seeds, and p of the claim that more is answered."""
    rows: list[list[Cell]] = []
    for asked, run, task, (control, form) in ASKED:
        results = kept_run(root, run)
        measures, pair = results.config["measures"], (form.name, control.name)
        answers, right, short = (
            estimate_over_seeds(
                [row for row in results.rows if (row.arm, row.reference) == pair and one.is_in(row, 1)]
            )
            for metric, tokens in _SHOWN
            for one in numbers(measures)
            if (one.metric, one.times) == (metric, tokens) and one.task in (task, "perplexity")
        )
        [claim] = [
            one
            for one in judge(PARTS[results.kind].claims_on(measures), Measured(rows=results.rows))
            if one.claim.place == "far"
            and (one.claim.test.arm, one.claim.test.against, one.claim.test.quantity.task) == (*pair, task)
        ]
        rows.append([asked, answers, shown_p(claim.p), right, short])
    return Table(
        columns=["asked", "right answers", "p (Holm)", "loss of the right answer", "loss at 1,024 tokens"],
        rows=rows,
    )
