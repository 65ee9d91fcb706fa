"""Every table, figure and theorem of both papers in one line, with the verdicts on its claims.

Verdicts are those of kept results. Every claim, arm and number is on the page that its study writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lengthwise.report.tables import Cell, Table
from lengthwise_studies.claims import (
    FAILS,
    HOLDS,
    NOISE,
    NOT_RUN,
    OPPOSITE,
    OUTSIDE,
    REPRODUCED,
    Judged,
    judge,
)
from lengthwise_studies.paired_claims import Measured
from lengthwise_studies.paper import table1
from lengthwise_studies.paper.all_tables import TABLES
from tools.docs.kept_results import results_folder, runs_of
from tools.docs.kept_tables import CLAIMS, kept_tables

TABLE1 = "Table 1: does misalignment go with long-context scores?"
VERDICTS = (REPRODUCED, OPPOSITE, NOISE, OUTSIDE, NOT_RUN)
FIGURES = {
    "figure1": "Fig. 1: mean, length, reparameterized length",
    "figure1-paper": "Fig. 1 with SGD for the paper's 40,000 steps",
    "figure3": "Fig. 3: sum and length by training length",
    "figure4": "Fig. 4, App. C: the sum",
    "figure5": "Fig. 5, App. F: the mean with a uniform count",
    "theorem1": "Theorem 1, Eq. 3: a bound on the error",
    "theorem2": "Theorem 2, Eq. 5-11: errors of linear attention",
}
SPARSITY = {
    "sparse-parity": "sparse parity by length, k and locality",
    "position-coupling": "ids that couple tokens, given or predicted",
    "influence": "Fig. 2, 6: few tokens of the context decide",
    "sparsity-bounds": "Theorem 4.3 and the rebuttal's bound",
    "sparsity-bridge-real": "ours: which tokens alignment forgets",
}


def tables_index(root: Path) -> Table:
    """One line for each table of the alignment paper and its rebuttal, and for each kept run: claims by verdict."""
    rows: list[list[Cell]] = []
    for title, study, judged in _every_table(root):
        counts = Counter(one.verdict for one in judged)
        rows.append([title, study, len(judged), *(counts[verdict] or "" for verdict in VERDICTS)])
    return Table(columns=["table", "study", "claims", *VERDICTS], rows=rows)


def verdicts_table(root: Path) -> Table:
    """One line for each claim of these tables, with our number and the verdict."""
    rows: list[list[Cell]] = [
        [
            title.partition(":")[0] if TABLE1 not in title else title.replace(TABLE1, "Table 1"),
            one.claim.says,
            one.claim.paper.replace("no number in the text", ""),
            one.found.ours,
            "" if one.p is None else "< 0.001" if one.p < 0.001 else f"{one.p:.2g}",
            one.verdict,
        ]
        for title, _, judged in _every_table(root)
        for one in judged
    ]
    return Table(columns=["table", "claim", "paper", "ours", "p (Holm)", "verdict"], rows=rows)


def _every_table(root: Path) -> Iterator[tuple[str, str, list[Judged]]]:
    """Title, study and verdicts of each kept run, and of each table that was not run."""
    folder = results_folder(root)
    for run in runs_of(folder, "table1"):
        for who, every in table1.judged(run.results).items():
            yield (
                f"{TABLE1} ({who} models)",
                "table1",
                [one for one in every if one.claim.place == "Table 1"],
            )
    for name, table in TABLES.items():
        runs = [(run.variant, table.judged(run.results)) for run in runs_of(folder, name)]
        for variant, judged in runs or [("", judge(table.claims, Measured(rows=[])))]:
            if judged:
                yield f"{table.title} ({variant})" if variant else table.title, name, judged


def kept_index(root: Path, which: str) -> Table:
    """One line for each study of figures and theorems, or of the sparsity paper: claims by verdict."""
    rows: list[list[Cell]] = []
    for name, about in {"figures": FIGURES, "sparsity": SPARSITY}[which].items():
        tables = kept_tables(name, root)
        if not tables:
            continue
        claims = [table for table in tables if table.caption == CLAIMS]
        verdicts = [row[table.columns.index("verdict")] for table in claims for row in table.rows]
        counts = Counter(one if one in (HOLDS, "yes") else one.partition(":")[0] for one in verdicts)
        hold, fail = counts[HOLDS] + counts["yes"], counts[FAILS]
        study = name.replace("-paper", " --scale paper")
        rows.append(
            [about, study, *(each or "" for each in (len(verdicts), hold, fail, len(verdicts) - hold - fail))]
        )
    return Table(
        columns=["item", "study", "claims", "hold", "do not hold", "in part, or not decided"], rows=rows
    )
